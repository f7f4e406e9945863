# Tests of the oneDNN backend, where it is built. OpenMP confuses ThreadSanitizer: tier 2.
get_target_property(engine_definitions rp_engine COMPILE_DEFINITIONS)
if("RPI_WITH_ONEDNN" IN_LIST engine_definitions)
  redpoll_test(engine/onednn_backend_test USES engine engine_fixture TIER 2 TIMEOUT 120)
  redpoll_test(engine/onednn_team_test USES engine TIER 2 ENVIRONMENT "OMP_PROC_BIND=false")
  add_test(NAME engine/onednn_places_test COMMAND engine_onednn_team_test places_are_heeded)
  set_tests_properties(engine/onednn_places_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60
                       LABELS tier2 ENVIRONMENT OMP_PROC_BIND=true)
  add_test(NAME engine/onednn_openmp_test
           COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/onednn_openmp_test.sh $<TARGET_FILE:engine_onednn_team_test>
                   ${PROJECT_SOURCE_DIR}/src/engine/onednn/onednn_team.list)
  set_tests_properties(engine/onednn_openmp_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60 LABELS tier2)
  redpoll_test(engine/onednn_conv_test USES engine engine_fixture TIER 2)
  redpoll_test(engine/onednn_half_test USES engine engine_fixture TIER 2)
  redpoll_test(engine/onednn_norm_sum_test USES engine engine_fixture TIER 2 TIMEOUT 120)
  redpoll_test(engine/onednn_algorithm_test USES engine TIER 2)
  redpoll_test(engine/onednn_kernels_test USES engine train engine_fixture TIER 2)
  # Processors without AVX-512 have other kernels and blocks of 8 channels.
  foreach(name backend kernels)
    add_test(NAME engine/onednn_${name}_avx2_test COMMAND engine_onednn_${name}_test)
    set_tests_properties(engine/onednn_${name}_avx2_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120
                         LABELS tier2 ENVIRONMENT ONEDNN_MAX_CPU_ISA=AVX2)
  endforeach()
  # bf16 without AMX has other convolutions.
  add_test(NAME engine/backends_without_amx_test COMMAND engine_backends_test ops_in_bf16)
  add_test(NAME engine/onednn_half_without_amx_test COMMAND engine_onednn_half_test)
  set_tests_properties(engine/backends_without_amx_test engine/onednn_half_without_amx_test PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120
                       LABELS tier2 ENVIRONMENT ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16)
endif()
