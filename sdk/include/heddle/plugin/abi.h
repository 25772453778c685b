// The ABI tag: all properties that must be equal for a plugin and the engine to share C++ objects, as one
// text.
#pragma once

#include <torch/headeronly/version.h>

#include <version>

#include "heddle/base/version.h"

#define HEDDLE_TEXT_OF_(x) #x
#define HEDDLE_TEXT_OF(x) HEDDLE_TEXT_OF_(x)

#if defined(__clang__)
#define HEDDLE_ABI_COMPILER "clang-" HEDDLE_TEXT_OF(__clang_major__)
#else
#define HEDDLE_ABI_COMPILER "gcc-" HEDDLE_TEXT_OF(__GNUC__)
#endif

#if defined(_LIBCPP_VERSION)
#define HEDDLE_ABI_LIBRARY "libc++-" HEDDLE_TEXT_OF(_LIBCPP_VERSION)
#elif _GLIBCXX_USE_CXX11_ABI
#define HEDDLE_ABI_LIBRARY "libstdc++-" HEDDLE_TEXT_OF(_GLIBCXX_RELEASE) "-cxx11"
#else
#define HEDDLE_ABI_LIBRARY "libstdc++-" HEDDLE_TEXT_OF(_GLIBCXX_RELEASE) "-old"
#endif

#if defined(__x86_64__)
#define HEDDLE_ABI_PLATFORM "linux-x86_64"
#elif defined(__aarch64__)
#define HEDDLE_ABI_PLATFORM "linux-aarch64"
#endif

// The debug mode of the standard library changes the layout of containers; NDEBUG does not.
#if defined(_GLIBCXX_DEBUG)
#define HEDDLE_ABI_DEBUG "debug"
#else
#define HEDDLE_ABI_DEBUG "plain"
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEDDLE_ABI_SANITIZER "+address"
#elif __has_feature(thread_sanitizer)
#define HEDDLE_ABI_SANITIZER "+thread"
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HEDDLE_ABI_SANITIZER "+address"
#elif defined(__SANITIZE_THREAD__)
#define HEDDLE_ABI_SANITIZER "+thread"
#endif
#if !defined(HEDDLE_ABI_SANITIZER)
#define HEDDLE_ABI_SANITIZER ""
#endif

// Set by the CMake package from the torch it found.
#if !defined(HEDDLE_TORCH_CUDA)
#define HEDDLE_TORCH_CUDA none
#endif

// "sdk=3 torch=2.11.0 compiler=gcc-12 library=libstdc++-12-cxx11 platform=linux-x86_64 mode=plain cuda=13"
#define HEDDLE_ABI_TAG                                                                                     \
  "sdk=" HEDDLE_TEXT_OF(HEDDLE_SDK_NUMBER) " torch=" TORCH_VERSION " compiler=" HEDDLE_ABI_COMPILER        \
                                           " library=" HEDDLE_ABI_LIBRARY " platform=" HEDDLE_ABI_PLATFORM \
                                           " mode=" HEDDLE_ABI_DEBUG HEDDLE_ABI_SANITIZER                  \
                                           " cuda=" HEDDLE_TEXT_OF(HEDDLE_TORCH_CUDA)
