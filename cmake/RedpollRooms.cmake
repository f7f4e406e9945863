# redpoll_room(codec SOURCES codec.c ... USES base LIBRARIES ...): one room as a static library
# rp_codec, whose headers are found as "codec/codec.h" and "redpoll/codec.h".
function(redpoll_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;USES;LIBRARIES" ${ARGN})
  add_library(rp_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(rp_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                               ${PROJECT_BINARY_DIR}/include)
  list(TRANSFORM ROOM_USES PREPEND rp_)
  target_link_libraries(rp_${name} PUBLIC ${ROOM_USES} ${ROOM_LIBRARIES})
endfunction()

# Timeouts of tests are against hangs. A sanitizer takes several times as long.
set(REDPOLL_TIMEOUT_FACTOR 2)
if(REDPOLL_SANITIZE)
  set(REDPOLL_TIMEOUT_FACTOR 6)
endif()

# redpoll_long_test(NAME TIMEOUT COMMAND...): NAME.long, which `make check-long` runs and a plain
# ctest does not. REDPOLL_LONG_TESTS=1 is set in it; exit code 77 is skipped.
function(redpoll_long_test name timeout)
  add_test(NAME ${name}.long CONFIGURATIONS Long COMMAND ${ARGN})
  set_tests_properties(${name}.long PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${timeout} LABELS long
                       ENVIRONMENT REDPOLL_LONG_TESTS=1)
endfunction()

# redpoll_test(codec/quant_test USES codec [TIER 1] [LABELS netns] [TIMEOUT 60] [LONG 900]): one
# test program from tests/codec/quant_test.c, one ctest entry named codec/quant_test. LONG: its
# long form (check_seconds(), check_long()) is a test of `make check-long`, with this timeout.
function(redpoll_test path)
  cmake_parse_arguments(TEST "" "TIER;TIMEOUT;LONG" "USES;LABELS;SOURCES;LIBRARIES;ENVIRONMENT" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 60)
  endif()
  math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * ${REDPOLL_TIMEOUT_FACTOR}")
  string(REPLACE "/" "_" target ${path})
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path}.c ${TEST_SOURCES})
  list(TRANSFORM TEST_USES PREPEND rp_)
  target_link_libraries(${target} PRIVATE rp_harness ${TEST_USES} ${TEST_LIBRARIES})
  add_test(NAME ${path} COMMAND ${target})
  if(DEFINED TEST_TIER)
    list(APPEND TEST_LABELS tier${TEST_TIER})
  endif()
  set_tests_properties(${path} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${TEST_TIMEOUT}
                       LABELS "${TEST_LABELS}" ENVIRONMENT "${TEST_ENVIRONMENT}")
  if(TEST_LONG)
    redpoll_long_test(${path} ${TEST_LONG} ${target})
    set_property(TEST ${path}.long APPEND PROPERTY ENVIRONMENT ${TEST_ENVIRONMENT})
  endif()
endfunction()
