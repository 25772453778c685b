# Flags that every target shares, and heddle_add_plugin() as the tree itself uses it.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(HEDDLE_CCACHE ccache)
if(HEDDLE_CCACHE)
  # Paths are made relative, so that two clones share what they compile.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${HEDDLE_CCACHE})
endif()
find_program(HEDDLE_MOLD mold)
if(HEDDLE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Warnings, the sanitizer of the preset, and where libraries are looked for at run time (RPATH, which plugins
# opened with dlopen inherit).
function(heddle_target target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  if(HEDDLE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${HEDDLE_SANITIZE})
  endif()
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES
    BUILD_RPATH "$ORIGIN;$ORIGIN/..;${TORCHWHEEL_LIBRARY_DIR}" INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib;$ORIGIN/..;${TORCHWHEEL_LIBRARY_DIR}")
endfunction()

# For what is not on the path of a step (the trainer, tests): lighter optimization, so that it compiles faster.
function(heddle_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Compiles the sources of one folder together, `size` at a time (CMake's unity build): most of a file's compile time
# is LibTorch's headers. Kernels with compile options of their own stay alone.
function(heddle_unity target size)
  get_target_property(sources ${target} SOURCES)
  get_target_property(home ${target} SOURCE_DIR)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${home} NORMALIZE)
    cmake_path(GET source PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" key)
    math(EXPR count_${key} "${count_${key}} + 1")
    math(EXPR part "(${count_${key}} - 1) / ${size}")
    cmake_path(GET folder FILENAME name)
    set_property(SOURCE ${source} DIRECTORY ${home} PROPERTY UNITY_GROUP ${name}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A source that is included looks like a header, where a class must not use an anonymous namespace.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# LibTorch's headers, precompiled once for libraries and once for programs; they are most of a file's compile time.
# OFF shows an include that is missing.
option(HEDDLE_PRECOMPILE "Precompile LibTorch's headers" ON)
function(heddle_precompiled_headers)
  if(NOT HEDDLE_PRECOMPILE)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/headers.cpp CONTENT "// Holds the precompiled headers.\n")
  foreach(target heddle_library_headers heddle_program_headers)
    add_library(${target} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/generated/headers.cpp)
    target_link_libraries(${target} PRIVATE TorchWheel::torch)
    heddle_target(${target})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/torch_headers.h)
  endforeach()
  set_target_properties(heddle_program_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(heddle_program_headers PRIVATE -fPIE)
endfunction()

# The target's sources begin with the precompiled headers; its visibility must be set. Sources with compile options of
# their own cannot, and a target with visible symbols compiles the headers for itself.
function(heddle_precompile target)
  if(NOT HEDDLE_PRECOMPILE)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  get_target_property(visibility ${target} CXX_VISIBILITY_PRESET)
  if(NOT visibility STREQUAL "hidden")
    target_precompile_headers(${target} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/torch_headers.h)
  elseif(type STREQUAL "EXECUTABLE")
    target_precompile_headers(${target} REUSE_FROM heddle_program_headers)
  else()
    target_precompile_headers(${target} REUSE_FROM heddle_library_headers)
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

include(${CMAKE_SOURCE_DIR}/sdk/cmake/HeddleAddPlugin.cmake)
