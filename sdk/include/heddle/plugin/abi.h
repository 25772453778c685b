// HEDDLE_ABI_TAG, a text with all properties that must be equal in a plugin and the engine for sharing C++
// objects.
#pragma once

#include <torch/headeronly/version.h>

#include <version>

#include "heddle/base/version.h"

#define HEDDLE_TEXT_OF_(x) #x
#define HEDDLE_TEXT_OF(x) HEDDLE_TEXT_OF_(x)

// The ABI of the standard library. Compilers and releases with the same ABI may be mixed. The dynamic linker
// refuses a plugin that needs a newer library than the machine has.
#if defined(_LIBCPP_ABI_VERSION)
#define HEDDLE_ABI_LIBRARY "libc++-" HEDDLE_TEXT_OF(_LIBCPP_ABI_VERSION)
#elif _GLIBCXX_USE_CXX11_ABI
#define HEDDLE_ABI_LIBRARY "libstdc++-cxx11"
#else
#define HEDDLE_ABI_LIBRARY "libstdc++-old"
#endif

#if defined(__x86_64__)
#define HEDDLE_ABI_PLATFORM "linux-x86_64"
#elif defined(__aarch64__)
#define HEDDLE_ABI_PLATFORM "linux-aarch64"
#endif

// The debug mode of the standard library changes the layout of containers. NDEBUG does not.
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

// "sdk=17 torch=2.11.0 library=libstdc++-cxx11 platform=linux-x86_64 mode=plain"
#define HEDDLE_ABI_TAG                                                                            \
  "sdk=" HEDDLE_TEXT_OF(HEDDLE_SDK_NUMBER) " torch=" TORCH_VERSION " library=" HEDDLE_ABI_LIBRARY \
                                           " platform=" HEDDLE_ABI_PLATFORM                       \
                                           " mode=" HEDDLE_ABI_DEBUG HEDDLE_ABI_SANITIZER
