# Compiler flags of all targets, and heddle_add_plugin() for plugins in this tree.
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
  # Relative paths, so that two clones share compiler cache entries.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${HEDDLE_CCACHE})
endif()
find_program(HEDDLE_MOLD mold)
if(HEDDLE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Sets warnings, the sanitizer of the preset, and RPATH, which plugins loaded with dlopen inherit.
function(heddle_target target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter)
  target_compile_definitions(${target} PRIVATE AT_PER_OPERATOR_HEADERS)  # LibTorch's headers include few operators
  # Disables the compiler's garbage collection below 1.5 GB, which would traverse LibTorch's precompiled
  # headers repeatedly.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1500000>)
  if(HEDDLE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${HEDDLE_SANITIZE})
  endif()
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES
    BUILD_RPATH "$ORIGIN;$ORIGIN/..;${TORCHWHEEL_LIBRARY_DIR}" INSTALL_RPATH "$ORIGIN;$ORIGIN/../lib;$ORIGIN/..;${TORCHWHEEL_LIBRARY_DIR}")
endfunction()

# For targets outside the path of a step (the trainer, tests): lighter optimization, which compiles faster.
function(heddle_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Compiles the target's sources in equal groups of at most `size` files (CMake's unity build), because each
# command instantiates the templates of LibTorch's headers, precompiled or not. Sources with their own compile
# options are compiled separately. Sources that include the JSON header come first, so that few groups compile
# it. OFF compiles each source separately, so that compile_commands.json lists it (the preset `editor`).
option(HEDDLE_UNITY "Compile the sources of a target together" ON)
function(heddle_unity target size)
  if(NOT HEDDLE_UNITY)
    return()
  endif()
  get_target_property(all ${target} SOURCES)
  get_target_property(home ${target} SOURCE_DIR)
  set(sources "")
  set(others "")
  foreach(source ${all})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${home} NORMALIZE)
    file(STRINGS ${source} json REGEX "#include <nlohmann/json.hpp>" LIMIT_COUNT 1)
    if(json)
      list(APPEND sources ${source})
    else()
      list(APPEND others ${source})
    endif()
  endforeach()
  list(APPEND sources ${others})
  list(LENGTH sources count)
  math(EXPR parts "(${count} + ${size} - 1) / ${size}")
  set(index 0)
  foreach(source ${sources})
    math(EXPR part "${index} * ${parts} / ${count}")
    math(EXPR index "${index} + 1")
    set_property(SOURCE ${source} DIRECTORY ${home} PROPERTY UNITY_GROUP ${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A source that a unity source includes counts as a header, in which a class must not use an anonymous namespace.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# Precompiles LibTorch's headers once for libraries and once for programs (with the headers of tests). OFF reveals
# missing includes.
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
  if(HEDDLE_TESTS)
    target_precompile_headers(heddle_program_headers PRIVATE ${CMAKE_SOURCE_DIR}/cmake/test_headers.h)
    target_compile_definitions(heddle_program_headers PRIVATE GTEST_HAS_PTHREAD=1)  # as GTest::gtest does
  endif()
  set_target_properties(heddle_program_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(heddle_program_headers PRIVATE -fPIE ${HEDDLE_PROGRAM_OPTIONS})
endfunction()

if(HEDDLE_SANITIZE)
  set(HEDDLE_PROGRAM_OPTIONS -O0)  # compiles sanitized tests in half the time
endif()

# Makes the target's sources start with the precompiled headers. Sources with their own compile options cannot
# use them.
function(heddle_precompile target)
  if(NOT HEDDLE_PRECOMPILE)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  get_target_property(visibility ${target} CXX_VISIBILITY_PRESET)
  if(NOT visibility STREQUAL "hidden")
    if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
      return()  # it accepts no precompiled headers of another visibility
    endif()
    target_compile_options(${target} PRIVATE -Wno-attributes)  # visible classes have members of hidden, precompiled types
  endif()
  if(type STREQUAL "EXECUTABLE")
    target_compile_options(${target} PRIVATE ${HEDDLE_PROGRAM_OPTIONS})
    target_precompile_headers(${target} REUSE_FROM heddle_program_headers)
    if(HEDDLE_TESTS)
      target_compile_definitions(${target} PRIVATE GTEST_HAS_PTHREAD=1)
    endif()
  else()
    target_precompile_headers(${target} REUSE_FROM heddle_library_headers)
  endif()
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

include(${CMAKE_SOURCE_DIR}/sdk/cmake/HeddleAddPlugin.cmake)

# Lists sources of a plugin that tests compile separately. WITHOUT_LIBTORCH: sources that do not use LibTorch.
function(heddle_tested_parts)
  cmake_parse_arguments(arg "WITHOUT_LIBTORCH" "" "" ${ARGN})
  set(name heddle_tested_parts)
  if(arg_WITHOUT_LIBTORCH)
    set(name heddle_tested_parts_without_libtorch)
  endif()
  list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  set_property(GLOBAL APPEND PROPERTY ${name} ${sources})
endfunction()
