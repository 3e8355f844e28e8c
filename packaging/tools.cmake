# The installed `freestone` command: the lab's Python package, what it compiles on demand, and a launcher.
set(tool_dir ${CMAKE_INSTALL_DATADIR}/freestone)
set(tool_libraries ${CMAKE_INSTALL_LIBDIR}/freestone)

configure_file(freestone.in freestone @ONLY)
install(PROGRAMS ${CMAKE_CURRENT_BINARY_DIR}/freestone DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT freestone-tools)
configure_file(freestone.1.in freestone.1 @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/freestone.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT freestone-tools)

install(FILES ${PROJECT_SOURCE_DIR}/lab/__main__.py ${PROJECT_SOURCE_DIR}/lab/requirements.txt DESTINATION ${tool_dir}/lab COMPONENT freestone-tools)
foreach(part lab/freestone_lab lab/peers allocator/tests/fault/attacks)
  get_filename_component(parent ${part} DIRECTORY)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${part} DESTINATION ${tool_dir}/${parent} COMPONENT freestone-tools
    PATTERN __pycache__ EXCLUDE PATTERN target EXCLUDE PATTERN Cargo.lock EXCLUDE PATTERN .gitignore EXCLUDE)
endforeach()

# The folder where the tool looks for the libraries by their plain names, and for the workload program.
file(RELATIVE_PATH libraries_from_tool /${tool_dir} /${tool_libraries})
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/installed "${libraries_from_tool}\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/installed DESTINATION ${tool_dir} COMPONENT freestone-tools)
install(DIRECTORY DESTINATION ${tool_libraries} COMPONENT freestone-tools)
foreach(library libfreestone libfreestone-hardened)
  install(CODE "file(CREATE_LINK ../${library}.so.1 \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${tool_libraries}/${library}.so\" SYMBOLIC)"
    COMPONENT freestone-tools)
endforeach()
if(TARGET freestone-workload)
  # `freestone build` makes the libraries only, and what it made can be installed.
  install(TARGETS freestone-workload RUNTIME DESTINATION ${tool_libraries} COMPONENT freestone-tools OPTIONAL)
endif()
