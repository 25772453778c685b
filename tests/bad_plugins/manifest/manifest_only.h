// Macros for a manifest written by hand. NEVER_OPENED aborts if the library is opened despite its manifest.
#pragma once

#include <cstdlib>

#include "heddle/plugin/abi.h"

#define HAND_WRITTEN_MANIFEST(text)                                                      \
  extern "C" __attribute__((visibility("default"))) const char heddle_plugin_manifest[]; \
  extern "C" __attribute__((section("heddle_manifest"), used)) const char heddle_plugin_manifest[] = text

#define NEVER_OPENED                                     \
  namespace {                                            \
  [[maybe_unused]] const int opened = (std::abort(), 0); \
  }
