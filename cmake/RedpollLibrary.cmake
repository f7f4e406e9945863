# libredpoll: the rooms below the engine in one shared and one static library, with headers,
# redpoll.pc and a CMake package. The engine and the trainer are part of the command.

set(library_rooms base plan codec cuda net comm methods)
set(library_objects)
foreach(room ${library_rooms})
  list(APPEND library_objects $<TARGET_OBJECTS:rp_${room}>)
endforeach()

add_library(redpoll SHARED ${library_objects})
add_library(redpoll_static STATIC ${library_objects})
set_target_properties(redpoll PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(redpoll_static PROPERTIES OUTPUT_NAME redpoll EXPORT_NAME static)
add_library(redpoll::redpoll ALIAS redpoll) # as find_package() names them
add_library(redpoll::static ALIAS redpoll_static)
set_target_properties(redpoll redpoll_static PROPERTIES LINKER_LANGUAGE C)
if(NOT REDPOLL_SANITIZE) # whose runtime is in the program that loads the library
  target_link_options(redpoll PRIVATE -Wl,--no-undefined)
endif()
foreach(library redpoll redpoll_static)
  target_include_directories(${library} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${library} PUBLIC Threads::Threads m PRIVATE ${REDPOLL_OPENSSL_LIBRARIES} ${CMAKE_DL_LIBS})
endforeach()

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/redpoll)
# lib/pkgconfig or lib/x86_64-linux-gnu/pkgconfig: as many steps up to the prefix.
string(REGEX REPLACE "[^/]+" ".." steps_up ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(REDPOLL_PC_PREFIX "\${pcfiledir}/${steps_up}")
list(TRANSFORM REDPOLL_OPENSSL_LIBRARIES PREPEND " -l" OUTPUT_VARIABLE REDPOLL_PC_OPENSSL)
list(JOIN REDPOLL_PC_OPENSSL "" REDPOLL_PC_OPENSSL)
configure_file(${CMAKE_CURRENT_LIST_DIR}/redpoll.pc.in redpoll.pc @ONLY)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/redpoll-config.cmake.in redpoll-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(redpoll-config-version.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS redpoll redpoll_static EXPORT redpoll-targets)
install(EXPORT redpoll-targets NAMESPACE redpoll:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/redpoll-config.cmake ${PROJECT_BINARY_DIR}/redpoll-config-version.cmake
        DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/redpoll.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/redpoll DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/redpoll/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/redpoll)
