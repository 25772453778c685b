// Writes manifest by hand, and ends the process if the library is opened: a refusal must come before that.
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
