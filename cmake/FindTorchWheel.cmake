# Finds LibTorch in an installed pip wheel, without running Python. HEDDLE_TORCH (a variable or the environment)
# names the directory of an installed torch package. Default: the package that scripts/setup installs under
# ~/.cache/heddle.
#   TorchWheel::torch  the CPU libraries torch_cpu and c10, headers, definitions
if(TARGET TorchWheel::torch)
  return()
endif()
set(HEDDLE_TORCH "$ENV{HEDDLE_TORCH}" CACHE PATH "Directory of the installed torch package (contains include/ and lib/)")
if(NOT HEDDLE_TORCH)
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(HEDDLE_TORCH "$ENV{XDG_CACHE_HOME}/heddle/torch-2.11.0/torch")
  else()
    set(HEDDLE_TORCH "$ENV{HOME}/.cache/heddle/torch-2.11.0/torch")
  endif()
endif()
if(NOT EXISTS ${HEDDLE_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch in '${HEDDLE_TORCH}'. Set HEDDLE_TORCH to the directory `torch` of an installed "
                      "torch 2.11.0 package (pip install torch==2.11.0); in heddle's source tree, scripts/setup downloads it.")
endif()
file(STRINGS ${HEDDLE_TORCH}/include/torch/headeronly/version.h version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" TORCHWHEEL_VERSION "${version_lines}")
if(NOT TORCHWHEEL_VERSION VERSION_EQUAL 2.11.0)
  message(FATAL_ERROR "LibTorch 2.11.0 is needed; '${HEDDLE_TORCH}' contains ${TORCHWHEEL_VERSION}.")
endif()
# CUDA version of this torch, for the ABI tag.
set(TORCHWHEEL_LIBRARY_DIR ${HEDDLE_TORCH}/lib)

add_library(TorchWheel::torch INTERFACE IMPORTED)
# -idirafter: the wheel contains a newer fmt than the version with which the system's spdlog was built.
# -fclang-abi-compat: since 18, clang gives templates with constraints other symbols than GCC, which built LibTorch.
target_compile_options(TorchWheel::torch INTERFACE
  $<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,18>>:-fclang-abi-compat=17>
  "SHELL:-idirafter ${HEDDLE_TORCH}/include" "SHELL:-idirafter ${HEDDLE_TORCH}/include/torch/csrc/api/include")
# NDEBUG in every build type, because LibTorch was built with it and its classes have other members without.
target_compile_definitions(TorchWheel::torch INTERFACE NDEBUG USE_DISTRIBUTED USE_C10D_GLOO USE_RPC)
target_link_options(TorchWheel::torch INTERFACE -Wl,-rpath-link,${HEDDLE_TORCH}/../nvidia/cu13/lib)
target_link_libraries(TorchWheel::torch INTERFACE
  ${TORCHWHEEL_LIBRARY_DIR}/libtorch_cpu.so ${TORCHWHEEL_LIBRARY_DIR}/libc10.so)
message(STATUS "LibTorch ${TORCHWHEEL_VERSION} in ${HEDDLE_TORCH}")
