# heddle_add_plugin(NAME SOURCES...): builds libheddle_NAME.so with the flags that the door asks for.
function(heddle_add_plugin name)
  add_library(heddle_plugin_${name} SHARED ${ARGN})
  target_link_libraries(heddle_plugin_${name} PRIVATE heddle)
  target_include_directories(heddle_plugin_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(heddle_plugin_${name} PROPERTIES
    OUTPUT_NAME heddle_${name} CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
endfunction()
