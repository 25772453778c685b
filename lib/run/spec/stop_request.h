// Request to stop a run, shared by its processes on one machine.
#pragma once

#include <atomic>

namespace heddle {

// Written by the signal handlers and read by the ranks.
struct StopRequest {
  std::atomic<int> signal = 0;              // number of the first signal; 0: none
  std::atomic<bool> from_terminal = false;  // sent by a key of the terminal, also to the shell
  std::atomic<bool> stepping = false;       // the first step is near, so there may be something to save
  std::atomic<bool> open_line = false;      // the progress line on the terminal is not terminated
};

}  // namespace heddle
