# heddle_add_plugin(NAME SOURCES...): builds plugins/libheddle_NAME.so in the build tree with the engine's
# flags, and installs it to lib/plugins. The target is heddle_plugin_NAME.
function(heddle_add_plugin name)
  add_library(heddle_plugin_${name} SHARED ${ARGN})
  heddle_plugin_flags(heddle_plugin_${name})
  if(COMMAND heddle_unity)
    heddle_unity(heddle_plugin_${name} 16)  # within the engine's tree only
  endif()
  set_target_properties(heddle_plugin_${name} PROPERTIES
    OUTPUT_NAME heddle_${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
  install(TARGETS heddle_plugin_${name} LIBRARY DESTINATION lib/plugins)
endfunction()

# heddle_plugin_scripts(NAME SCRIPTS...): copies the scripts of the plugin's text data sets to the directory
# of its library, in the build tree and in the installation.
function(heddle_plugin_scripts name)
  foreach(script ${ARGN})
    get_filename_component(file ${script} NAME)
    configure_file(${script} ${CMAKE_BINARY_DIR}/plugins/${file} COPYONLY)
    install(FILES ${script} DESTINATION lib/plugins)
  endforeach()
endfunction()

# heddle_plugin_flags(TARGET): sets the compiler and linker flags of a plugin. The sharding engine is a static
# archive, from which a plugin links only the files that it uses. The library exports only the symbols that
# HEDDLE_PLUGIN marks. Undefined symbols are link errors, so they cannot appear when the plugin is loaded.
# DT_RPATH is used because RUNPATH does not apply to libraries that a library loads. OpenMP is not enabled,
# because at::parallel_for uses LibTorch's OpenMP runtime.
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
    heddle_target(${target})  # within the engine's tree only: warnings and sanitizers
    heddle_precompile(${target})
  endif()
  if(NOT HEDDLE_SANITIZE AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")  # the program has the sanitizer's symbols
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
endfunction()
