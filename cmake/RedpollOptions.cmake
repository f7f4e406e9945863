# Build options: AUTO takes what is installed, ON insists, OFF leaves out.

option(REDPOLL_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(REDPOLL_WERROR "Treat compiler warnings as errors" OFF)
option(REDPOLL_FUZZ "Build the fuzz targets of tests/fuzz as programs of libFuzzer, and no other tests; wants clang" OFF)
set(REDPOLL_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them (address,undefined or thread)")
option(REDPOLL_COMMAND "Build the command redpoll, with the engine and the trainer, beside the library" ON)
set(REDPOLL_ONEDNN AUTO CACHE STRING "The oneDNN backend of the engine: AUTO, ON or OFF")
set_property(CACHE REDPOLL_ONEDNN PROPERTY STRINGS AUTO ON OFF)
if(NOT REDPOLL_ONEDNN MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REDPOLL_ONEDNN is '${REDPOLL_ONEDNN}'; use AUTO, ON or OFF")
endif()
set(REDPOLL_PICTURES AUTO CACHE STRING "JPEG and PNG pictures as data of the trainer: AUTO, ON or OFF")
set_property(CACHE REDPOLL_PICTURES PROPERTY STRINGS AUTO ON OFF)
if(NOT REDPOLL_PICTURES MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REDPOLL_PICTURES is '${REDPOLL_PICTURES}'; use AUTO, ON or OFF")
endif()
set(REDPOLL_PYTHON AUTO CACHE STRING "The Python package in the build folder, with its tests: AUTO, ON or OFF")
set_property(CACHE REDPOLL_PYTHON PROPERTY STRINGS AUTO ON OFF)
if(NOT REDPOLL_PYTHON MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REDPOLL_PYTHON is '${REDPOLL_PYTHON}'; use AUTO, ON or OFF")
endif()

set(REDPOLL_OPENSSL AUTO CACHE STRING "Secrets of jobs and TLS, by OpenSSL: AUTO, ON or OFF")
set_property(CACHE REDPOLL_OPENSSL PROPERTY STRINGS AUTO ON OFF)
if(NOT REDPOLL_OPENSSL MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REDPOLL_OPENSSL is '${REDPOLL_OPENSSL}'; use AUTO, ON or OFF")
endif()

set(REDPOLL_HWLOC AUTO CACHE STRING "What processors and memory ranks are bound to, by hwloc: AUTO, ON or OFF")
set_property(CACHE REDPOLL_HWLOC PROPERTY STRINGS AUTO ON OFF)
if(NOT REDPOLL_HWLOC MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REDPOLL_HWLOC is '${REDPOLL_HWLOC}'; use AUTO, ON or OFF")
endif()

set(REDPOLL_CUDA AUTO CACHE STRING "Codecs on a GPU, by nvcc: AUTO, ON or OFF")
set_property(CACHE REDPOLL_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT REDPOLL_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "REDPOLL_CUDA is '${REDPOLL_CUDA}'; use AUTO, ON or OFF")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# -ffp-contract=off: bits are promised, so the compiler may not fuse a multiply and an add.
add_compile_options("$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wshadow;-Wstrict-prototypes;-Wmissing-prototypes;-Wpointer-arith;-Wvla;-ffp-contract=off;-fno-math-errno>")
add_compile_definitions(_GNU_SOURCE)
if(REDPOLL_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:C>:-Werror>")
endif()
if(REDPOLL_SANITIZE)
  add_compile_options(-fsanitize=${REDPOLL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${REDPOLL_SANITIZE})
endif()

find_package(Threads REQUIRED)

# A plain Python cannot load a library built for a sanitizer; one test starts a Python that can, with
# the address sanitizer's runtime. ON turns a missing PyTorch, for which AUTO skips the tests, into a
# failure.
if(REDPOLL_PYTHON STREQUAL "ON" AND REDPOLL_SANITIZE)
  message(FATAL_ERROR "REDPOLL_PYTHON=ON does not go with REDPOLL_SANITIZE=${REDPOLL_SANITIZE}")
elseif(REDPOLL_PYTHON STREQUAL "AUTO" AND (REDPOLL_SANITIZE MATCHES "thread" OR NOT PROJECT_IS_TOP_LEVEL))
  set(REDPOLL_PYTHON OFF)
endif()
