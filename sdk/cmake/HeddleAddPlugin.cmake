# heddle_add_plugin(NAME SOURCES...): builds plugins/libheddle_NAME.so in the build tree with the flags that the
# engine asks for, and installs it to lib/plugins. The target is heddle_plugin_NAME.
function(heddle_add_plugin name)
  add_library(heddle_plugin_${name} SHARED ${ARGN})
  heddle_plugin_flags(heddle_plugin_${name})
  if(COMMAND heddle_unity)
    heddle_unity(heddle_plugin_${name} 16)  # inside the engine's own tree: its files together
  endif()
  set_target_properties(heddle_plugin_${name} PROPERTIES
    OUTPUT_NAME heddle_${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
  install(TARGETS heddle_plugin_${name} LIBRARY DESTINATION lib/plugins)
endfunction()

# heddle_plugin_scripts(NAME SCRIPTS...): copies scripts of the plugin's data sets of texts beside its library, here and where
# it is installed.
function(heddle_plugin_scripts name)
  foreach(script ${ARGN})
    get_filename_component(file ${script} NAME)
    configure_file(${script} ${CMAKE_BINARY_DIR}/plugins/${file} COPYONLY)
    install(FILES ${script} DESTINATION lib/plugins)
  endforeach()
endfunction()

# The sharding engine is an archive: a plugin that does not use it takes nothing of it.
# Nothing leaves the library but what HEDDLE_PLUGIN marks; a symbol that nobody has is found now, not when the plugin is opened;
# DT_RPATH, because RUNPATH does not reach what a library opens. No OpenMP: LibTorch brings its own, and
# at::parallel_for uses it.
function(heddle_plugin_flags target)
  if(TARGET Heddle::heddle)
    target_link_libraries(${target} PRIVATE Heddle::sharding Heddle::heddle)
  else()
    target_link_libraries(${target} PRIVATE heddle_sharding heddle)
  endif()
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  set_target_properties(${target} PROPERTIES
    PREFIX lib CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON
    BUILD_RPATH "$ORIGIN/..;${TORCHWHEEL_LIBRARY_DIR}" INSTALL_RPATH "$ORIGIN/..;${TORCHWHEEL_LIBRARY_DIR}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  if(COMMAND heddle_target)
    heddle_target(${target})  # inside the engine's own tree: its warnings and sanitizers
    heddle_precompile(${target})
  endif()
  if(NOT HEDDLE_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
