# For find_package(neater): the target neater::neater.
get_filename_component(_neater_libdir "${CMAKE_CURRENT_LIST_DIR}/../.." REALPATH)
find_path(neater_INCLUDE_DIR neater.h HINTS "${_neater_libdir}/../include" "${_neater_libdir}/../../include" NO_DEFAULT_PATH)
mark_as_advanced(neater_INCLUDE_DIR)

set(neater_FOUND TRUE)
if(NOT neater_INCLUDE_DIR)
    set(neater_FOUND FALSE)
    set(neater_NOT_FOUND_MESSAGE "neater.h is not beside ${_neater_libdir}")
endif()

if(neater_FOUND AND NOT TARGET neater::neater)
    add_library(neater::neater SHARED IMPORTED)
    set_target_properties(neater::neater PROPERTIES
        IMPORTED_LOCATION "${_neater_libdir}/libneater.so.0"
        IMPORTED_SONAME libneater.so.0
        INTERFACE_INCLUDE_DIRECTORIES "${neater_INCLUDE_DIR}")
endif()
