// Writes papers by hand, and ends the process if the library is opened: a refusal must come before that.
#pragma once

#include <cstdlib>

#include "heddle/plugin/abi.h"

#define HAND_WRITTEN_PAPERS(text)                                                      \
  extern "C" __attribute__((visibility("default"))) const char heddle_plugin_papers[]; \
  extern "C" __attribute__((section("heddle_papers"), used)) const char heddle_plugin_papers[] = text

#define NEVER_OPENED                                     \
  namespace {                                            \
  [[maybe_unused]] const int opened = (std::abort(), 0); \
  }
