# oldest_glibc(TARGET PARTS): links a tool so that it runs with glibc 2.28 and a libstdc++ of that time, whatever this
# machine has. The libraries themselves have another way: allocator/src/platform/late_libc.cc.
#
# A reference asks for the version under which the linker finds the function, and for its library. So the linker finds
# what has since moved into libc.so.6 in stubs of the libraries where it was. What was renewed or did not exist goes
# through the parts: `every`, for programs also `start`, for those in C++ also `cxx`.
include_guard(GLOBAL)
set(oldest_folder ${CMAKE_CURRENT_LIST_DIR})
set(oldest_glibc_version GLIBC_2.2.5)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
  set(oldest_glibc_version GLIBC_2.17)
endif()

# A stub of LIBRARY that has these functions; NAME@VERSION for one that x86-64 has had since a later version.
function(oldest_stub library)
  set(target oldest_${library})
  set(code)
  set(map)
  foreach(name IN LISTS ARGN)
    set(version ${oldest_glibc_version})
    if(name MATCHES "^(.+)@(.+)$")
      set(name ${CMAKE_MATCH_1})
      if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
        set(version ${CMAKE_MATCH_2})
      endif()
    endif()
    string(APPEND code "void ${name}(void) {}\n")
    string(APPEND names_${version} "${name}; ")
    list(APPEND versions ${version})
  endforeach()
  list(REMOVE_DUPLICATES versions)
  foreach(version IN LISTS versions)
    string(APPEND map "${version} { ${names_${version}}};\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.c CONTENT "${code}")
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.map CONTENT "${map}")
  add_library(${target} SHARED ${CMAKE_CURRENT_BINARY_DIR}/${target}.c)
  set_target_properties(${target} PROPERTIES NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_compile_options(${target} PRIVATE -w -fno-builtin)
  target_link_options(${target} PRIVATE -nostdlib -Wl,-soname,${library}
    -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  set_property(TARGET ${target} PROPERTY LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  set_property(GLOBAL APPEND PROPERTY oldest_stubs ${target})
endfunction()

oldest_stub(libpthread.so.0 pthread_attr_setstacksize pthread_barrier_destroy pthread_barrier_init pthread_barrier_wait
  pthread_cancel pthread_create pthread_detach pthread_getspecific pthread_join pthread_key_create pthread_key_delete
  pthread_setspecific pthread_testcancel sem_destroy sem_init sem_post sem_wait)
oldest_stub(libdl.so.2 dladdr dladdr1@GLIBC_2.3.3 dlerror dlopen dlsym)

# A part: what SOURCE defines for calls of the functions named behind it.
function(oldest_part part source)
  add_library(oldest_${part} OBJECT ${oldest_folder}/${source})
  set_target_properties(oldest_${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  list(TRANSFORM ARGN PREPEND -Wl,--wrap= OUTPUT_VARIABLE wrapped)
  set_property(GLOBAL PROPERTY oldest_wrapped_${part} ${wrapped})
endfunction()
oldest_part(every every.c fstat stat)
oldest_part(start start.c __libc_start_main)
oldest_part(cxx cxx.cc exp log _ZSt28__throw_bad_array_new_lengthv
  _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)

function(oldest_glibc target)
  foreach(part IN LISTS ARGN)
    get_property(wrapped GLOBAL PROPERTY oldest_wrapped_${part})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:oldest_${part}>)
    target_link_options(${target} PRIVATE ${wrapped})
  endforeach()
  get_property(stubs GLOBAL PROPERTY oldest_stubs)
  add_dependencies(${target} ${stubs})
  list(TRANSFORM stubs REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${stubs})
  # Behind the objects and in front of libc. In C++ needed in any case: std::thread looks for libpthread at run time.
  set(needed as-needed)
  if(cxx IN_LIST ARGN)
    set(needed no-as-needed)
  endif()
  target_link_libraries(${target} PRIVATE -Wl,--push-state,--${needed} ${stubs} -Wl,--pop-state)
endfunction()
