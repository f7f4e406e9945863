# For Linux on AArch64, by Debian's cross compiler; tests run under qemu where it is installed:
#   apt-get install gcc-aarch64-linux-gnu qemu-user-static
#   cmake --preset aarch64 && cmake --build --preset aarch64 && ctest --preset aarch64
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

# Where Debian's packages of that architecture (libyaml-dev:arm64) are, below REDPOLL_SYSROOT.
set(REDPOLL_SYSROOT "" CACHE PATH "Folder with usr/lib/aarch64-linux-gnu; empty: this machine's")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES REDPOLL_SYSROOT)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu ${REDPOLL_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
if(REDPOLL_SYSROOT) # headers that differ by processor, of OpenSSL, say, and libraries by their name
  set(CMAKE_C_FLAGS_INIT "-idirafter ${REDPOLL_SYSROOT}/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}")
  set(folder ${REDPOLL_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
  foreach(kind EXE SHARED)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "-L${folder} -Wl,-rpath-link,${folder}")
  endforeach()
endif()
set(ENV{PKG_CONFIG_LIBDIR} ${REDPOLL_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${REDPOLL_SYSROOT}")

# Programs find their libc below -L, and libraries of other packages where the linker did.
find_program(REDPOLL_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(REDPOLL_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${REDPOLL_QEMU} -L /usr/aarch64-linux-gnu)
endif()
