# cpack makes libfreestone1, libfreestone-dev and freestone-tools of the three components.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL libfreestone1 libfreestone-dev freestone-tools)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "memory allocator that takes the place of malloc")
set(CPACK_PACKAGE_CONTACT "Freestone maintainers <maintainers@freestone.invalid>")
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBFREESTONE1_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/debian/shlibs
  ${CMAKE_CURRENT_SOURCE_DIR}/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
if(CMAKE_LIBRARY_ARCHITECTURE STREQUAL aarch64-linux-gnu)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()

string(REPLACE "-" "~" CPACK_DEBIAN_PACKAGE_VERSION ${FREESTONE_VERSION})  # sorts before the release
set(version ${CPACK_DEBIAN_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(CPACK_DEBIAN_LIBFREESTONE1_PACKAGE_NAME libfreestone1)
set(CPACK_DEBIAN_LIBFREESTONE1_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBFREESTONE1_PACKAGE_DEPENDS "libc6 (>= 2.28)")
set(CPACK_DEBIAN_LIBFREESTONE1_PACKAGE_SHLIBDEPS OFF)  # it would name the oldest glibc that has the symbols, untried
set(CPACK_DEBIAN_LIBFREESTONE1_DESCRIPTION "Freestone takes the place of the C library's malloc and of C++'s operator
new, by linking or by LD_PRELOAD. It has statistics, limits and heap
profiles.

This package holds the library and its hardened build.")
set(CPACK_DEBIAN_LIBFREESTONE-DEV_PACKAGE_NAME libfreestone-dev)
set(CPACK_DEBIAN_LIBFREESTONE-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBFREESTONE-DEV_PACKAGE_DEPENDS "libfreestone1 (= ${version}), libc6-dev")
set(CPACK_DEBIAN_LIBFREESTONE-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIBFREESTONE-DEV_DESCRIPTION "Freestone takes the place of the C library's malloc and of C++'s operator
new, by linking or by LD_PRELOAD.

This package holds the headers, the static library, the library as one
object, a pkg-config file and a CMake package.")
set(CPACK_DEBIAN_FREESTONE-TOOLS_PACKAGE_NAME freestone-tools)
set(CPACK_DEBIAN_FREESTONE-TOOLS_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_FREESTONE-TOOLS_PACKAGE_DEPENDS "libfreestone1 (= ${version}), python3 (>= 3.11), python3-venv")
set(CPACK_DEBIAN_FREESTONE-TOOLS_PACKAGE_RECOMMENDS "g++, cmake, python3-jinja2 (>= 3.1),
 python3-matplotlib (>= 3.8), python3-msgspec (>= 0.18), python3-numpy (>= 1:1.26), python3-rich (>= 13.7),
 python3-scipy (>= 1.11), python3-zstandard (>= 0.22)")
set(CPACK_DEBIAN_FREESTONE-TOOLS_DESCRIPTION "The freestone command runs a program under the Freestone memory allocator,
shows its statistics, heap profile and leaks, and compares allocators on it
with evidence.

Where a recommended Python package is missing or too old, it makes at its
first use a Python environment in the user's cache, with packages from the
Python package index.")

# What Debian's policy wants of every package.
find_program(GZIP gzip REQUIRED)
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  set(doc ${CMAKE_INSTALL_DATADIR}/doc/${component})
  install(FILES debian/copyright DESTINATION ${doc} COMPONENT ${component})
  install(CODE "execute_process(COMMAND \"${GZIP}\" -9nc \"${CMAKE_CURRENT_SOURCE_DIR}/debian/changelog\"
    OUTPUT_FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${doc}/changelog.Debian.gz\" COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT ${component})
endforeach()
install(CODE "file(GLOB pages \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1/freestone*.1\")
  if(pages)
    execute_process(COMMAND \"${GZIP}\" -9nf \${pages} COMMAND_ERROR_IS_FATAL ANY)
  endif()" COMPONENT freestone-tools)
include(CPack)
