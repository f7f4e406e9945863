# What was chosen, in a few lines at the end of configuring.
message(STATUS "redpoll ${PROJECT_VERSION}: ${CMAKE_BUILD_TYPE}, sanitizers: '${REDPOLL_SANITIZE}'")
