# For find_package(neat): the target neat::neat.
get_filename_component(_neat_libdir "${CMAKE_CURRENT_LIST_DIR}/../.." REALPATH)
find_path(neat_INCLUDE_DIR neat.h HINTS "${_neat_libdir}/../include" "${_neat_libdir}/../../include" NO_DEFAULT_PATH)
# neat.h includes uv.h, and programs may use the loop themselves.
find_path(neat_UV_INCLUDE_DIR uv.h)
find_library(neat_UV_LIBRARY uv)
mark_as_advanced(neat_INCLUDE_DIR neat_UV_INCLUDE_DIR neat_UV_LIBRARY)

set(neat_FOUND TRUE)
foreach(_neat_needed neat_INCLUDE_DIR neat_UV_INCLUDE_DIR neat_UV_LIBRARY)
    if(NOT ${_neat_needed})
        set(neat_FOUND FALSE)
        set(neat_NOT_FOUND_MESSAGE "${_neat_needed} was not found: libneat needs its header, and libuv's (Debian: libuv1-dev)")
    endif()
endforeach()

if(neat_FOUND AND NOT TARGET neat::neat)
    add_library(neat::neat SHARED IMPORTED)
    set_target_properties(neat::neat PROPERTIES
        IMPORTED_LOCATION "${_neat_libdir}/libneat.so.0"
        IMPORTED_SONAME libneat.so.0
        INTERFACE_INCLUDE_DIRECTORIES "${neat_INCLUDE_DIR};${neat_UV_INCLUDE_DIR}"
        INTERFACE_LINK_LIBRARIES "${neat_UV_LIBRARY}")
endif()
