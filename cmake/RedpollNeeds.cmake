# redpoll_needs(YAML yaml-0.1 libyaml-dev): the target PkgConfig::YAML, or an error that says which
# package brings it.
function(redpoll_needs prefix module debian_package)
  find_package(PkgConfig QUIET)
  if(NOT PKG_CONFIG_FOUND)
    message(FATAL_ERROR "pkg-config is missing (Debian and Ubuntu: apt-get install pkg-config)")
  endif()
  pkg_check_modules(${prefix} QUIET IMPORTED_TARGET GLOBAL ${module})
  if(NOT ${prefix}_FOUND)
    message(FATAL_ERROR "${module} is missing (Debian and Ubuntu: apt-get install ${debian_package})")
  endif()
endfunction()
