# Builds for musl with this machine's gcc and Debian's musl-tools. The library needs no C++ runtime, so libstdc++'s
# headers are enough, and what is linked is linked as C:
#   ./freestone build --preset musl
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
set(CMAKE_C_COMPILER musl-gcc)
set(CMAKE_CXX_COMPILER g++)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpversion OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-multiarch OUTPUT_VARIABLE multiarch
  OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_CXX_FLAGS_INIT "-specs /usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-musl/musl-gcc.specs \
-isystem /usr/include/c++/${version} -isystem /usr/include/${multiarch}/c++/${version} \
-include ${CMAKE_CURRENT_LIST_DIR}/musl/glibc_names.h")
set(CMAKE_CXX_COMPILER_WORKS TRUE)  # no C++ program can be linked
