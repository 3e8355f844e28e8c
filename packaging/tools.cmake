# The installed `freestone` command: the lab's Python package, what it compiles on demand, the recorder and replayer of
# traces, a launcher.
set(tool_dir ${CMAKE_INSTALL_DATADIR}/freestone)
set(tool_libraries ${CMAKE_INSTALL_LIBDIR}/freestone)

configure_file(freestone.in freestone @ONLY)
install(PROGRAMS ${CMAKE_CURRENT_BINARY_DIR}/freestone DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT freestone-tools)
install(FILES ${PROJECT_SOURCE_DIR}/lab/__main__.py ${PROJECT_SOURCE_DIR}/lab/requirements.txt
  ${PROJECT_SOURCE_DIR}/lab/pyproject.toml
  DESTINATION ${tool_dir}/lab COMPONENT freestone-tools)
install(FILES ${PROJECT_SOURCE_DIR}/allocator/src/config/options.def DESTINATION ${tool_dir}/allocator/src/config
  COMPONENT freestone-tools)
foreach(part lab/freestone_lab lab/peers allocator/tests/fault/enumerated trace/corpus)
  get_filename_component(parent ${part} DIRECTORY)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${part} DESTINATION ${tool_dir}/${parent} COMPONENT freestone-tools
    PATTERN __pycache__ EXCLUDE PATTERN target EXCLUDE PATTERN Cargo.lock EXCLUDE PATTERN .gitignore EXCLUDE)
endforeach()

# Where the tool finds the libraries by their plain names, and the programs that it starts; the second line is the
# version.
file(RELATIVE_PATH libraries_from_tool /${tool_dir} /${tool_libraries})
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/installed "${libraries_from_tool}\n${FREESTONE_VERSION}\n")
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/installed DESTINATION ${tool_dir} COMPONENT freestone-tools)
install(DIRECTORY DESTINATION ${tool_libraries} COMPONENT freestone-tools)
foreach(library libfreestone libfreestone-hardened)
  install(CODE "file(CREATE_LINK ../${library}.so.1
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${tool_libraries}/${library}.so\" SYMBOLIC)"
    COMPONENT freestone-tools)
endforeach()
add_executable(freestone_probe ${PROJECT_SOURCE_DIR}/lab/freestone_lab/measure/native/probe.c)
set_target_properties(freestone_probe PROPERTIES OUTPUT_NAME probe)
target_compile_options(freestone_probe PRIVATE -O0)  # it keeps its calls of malloc
oldest_glibc(freestone_probe every start)
foreach(target freestone_probe freestone-workload freestone_record freestone-record freestone-replay)
  if(TARGET ${target})
    # `freestone build` makes the libraries only, and what it made can be installed.
    install(TARGETS ${target} DESTINATION ${tool_libraries} COMPONENT freestone-tools OPTIONAL)
  endif()
endforeach()

# What the lab makes itself: the pages and completions, and `launch`, which it otherwise compiles at first use.
find_program(FREESTONE_PYTHON3 NAMES python3)
if(FREESTONE_PYTHON3)
  install(CODE "
    set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
    execute_process(COMMAND \"${CMAKE_COMMAND}\" -E env CC=${CMAKE_C_COMPILER} \"${FREESTONE_PYTHON3}\" -B -I -S
      \"${CMAKE_CURRENT_LIST_DIR}/complete.py\" \"\${prefix}/${CMAKE_INSTALL_DATADIR}\" \"\${prefix}/${tool_libraries}\"
      ${FREESTONE_VERSION} COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT freestone-tools)
endif()
