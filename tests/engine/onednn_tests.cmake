# Tests of the oneDNN backend, where it is built. OpenMP confuses ThreadSanitizer: tier 2.
get_target_property(engine_definitions rp_engine COMPILE_DEFINITIONS)
if("RPI_WITH_ONEDNN" IN_LIST engine_definitions)
  redpoll_test(engine/onednn_backend_test USES engine TIER 2 TIMEOUT 120)
  # Pinning gives way to a binding that the environment asks OpenMP for.
  redpoll_test(engine/onednn_team_test USES engine TIER 2 ENVIRONMENT "OMP_PROC_BIND=false")
  redpoll_test(engine/onednn_tuning_test USES engine TIER 2)
  redpoll_test(engine/onednn_kernels_test USES engine train TIER 2)
endif()
