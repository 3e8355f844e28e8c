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

# A stub of LIBRARY that has these functions.
function(oldest_stub library)
  set(target oldest_${library})
  list(TRANSFORM ARGN REPLACE "(.+)" "void \\1(void) {}\n" OUTPUT_VARIABLE code)
  list(JOIN code "" code)
  list(JOIN ARGN "; " names)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.c CONTENT "${code}")
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.map CONTENT "${oldest_glibc_version} { ${names}; };\n")
  add_library(${target} SHARED ${CMAKE_CURRENT_BINARY_DIR}/${target}.c)
  set_target_properties(${target} PROPERTIES NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_compile_options(${target} PRIVATE -w -fno-builtin)
  target_link_options(${target} PRIVATE -nostdlib -Wl,-soname,${library}
    -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/${target}.map)
  set_property(GLOBAL APPEND PROPERTY oldest_stubs ${target})
endfunction()

oldest_stub(libpthread.so.0 pthread_create pthread_join pthread_detach pthread_key_create pthread_setspecific
  pthread_attr_setstacksize pthread_barrier_init pthread_barrier_wait pthread_barrier_destroy)
oldest_stub(libdl.so.2 dlopen dlsym dladdr)

set(oldest_every every.c fstat)
set(oldest_start start.c __libc_start_main)
set(oldest_cxx cxx.cc exp log _ZSt28__throw_bad_array_new_lengthv
  _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE)

function(oldest_glibc target)
  foreach(part IN LISTS ARGN)
    set(wrapped ${oldest_${part}})
    list(POP_FRONT wrapped source)
    target_sources(${target} PRIVATE ${oldest_folder}/${source})
    list(TRANSFORM wrapped PREPEND -Wl,--wrap=)
    target_link_options(${target} PRIVATE ${wrapped})
  endforeach()
  get_property(stubs GLOBAL PROPERTY oldest_stubs)
  add_dependencies(${target} ${stubs})
  list(TRANSFORM stubs REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  # Behind the objects and in front of libc. In C++ needed in any case: std::thread looks for libpthread at run time.
  set(needed as-needed)
  if(cxx IN_LIST ARGN)
    set(needed no-as-needed)
  endif()
  target_link_libraries(${target} PRIVATE -Wl,--push-state,--${needed} ${stubs} -Wl,--pop-state)
endfunction()
