# The Python package, staged in the build folder: python/redpoll is made of links to the sources, so
# that an edit needs no build, and of the library that was built. PYTHONPATH=BUILD/python uses it.
# Neither building nor staging needs a Python; the wheel is made by pyproject.toml.

set(staged_command)
if(REDPOLL_COMMAND)
  set(staged_command -DPROGRAM=$<TARGET_FILE:redpoll_command>)
endif()
set(staged_kernels "")
if(TARGET redpoll_cuda)
  set(staged_kernels -DKERNELS=$<TARGET_FILE:redpoll_cuda>)
endif()
add_custom_target(redpoll_python ALL
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}/python -DSTAGE=${PROJECT_BINARY_DIR}/python
          -DLIBRARY=$<TARGET_FILE:redpoll> ${staged_command} ${staged_kernels} -P ${CMAKE_CURRENT_LIST_DIR}/StagePython.cmake
  DEPENDS redpoll $<$<BOOL:${REDPOLL_COMMAND}>:redpoll_command> $<TARGET_NAME_IF_EXISTS:redpoll_cuda>
  COMMENT "Staging the Python package"
  VERBATIM)

# redpoll_python_test(NAME test_one.py test_two.py ... [COST 100] [TIMEOUT 300] [LABELS wheel]
# [ENVIRONMENT NAME=VALUE] [LONG test_two.py ... LONG_TIMEOUT 3600]): the ctest python/NAME, which runs these files in one
# pytest. run_pytest.sh chooses the Python and skips by name where PyTorch is missing. LONG: those
# that look at REDPOLL_LONG_TESTS; together they are a test of `make check-long`. COST: its seconds;
# the longest start first. It has three slots of `ctest -j`: its ranks compute, and leave a slot or
# more of `make test` to the many tests that wait.
function(redpoll_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "COST;TIMEOUT;LONG_TIMEOUT" "LABELS;ENVIRONMENT;LONG")
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  if(NOT TEST_COST)
    set(TEST_COST 100)
  endif()
  set(slots 3)
  if(REDPOLL_SANITIZE)
    set(slots 1)
  endif()
  math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * ${REDPOLL_TIMEOUT_FACTOR}")
  list(TRANSFORM TEST_UNPARSED_ARGUMENTS PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  add_test(NAME python/${name}
           COMMAND sh ${PROJECT_SOURCE_DIR}/tests/python/run_pytest.sh ${PROJECT_BINARY_DIR}
                   ${TEST_UNPARSED_ARGUMENTS})
  set_tests_properties(python/${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${TEST_TIMEOUT}
                       LABELS "torch;tier2;${TEST_LABELS}" COST ${TEST_COST} PROCESSORS ${slots}
                       ENVIRONMENT "REDPOLL_PYTHON_TESTS=${REDPOLL_PYTHON};${TEST_ENVIRONMENT}")
  if(TEST_LONG)
    list(TRANSFORM TEST_LONG PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
    redpoll_long_test(python/${name} ${TEST_LONG_TIMEOUT}
      sh ${PROJECT_SOURCE_DIR}/tests/python/run_pytest.sh ${PROJECT_BINARY_DIR} ${TEST_LONG})
    set_property(TEST python/${name}.long APPEND PROPERTY
                 ENVIRONMENT REDPOLL_PYTHON_TESTS=${REDPOLL_PYTHON})
  endif()
endfunction()
