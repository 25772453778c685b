// What the processes of a run on one machine share.
#pragma once

#include <atomic>

namespace heddle {

// Signals are written by whoever gets them and read by the ranks.
struct StopRequest {
  std::atomic<int> signal = 0;              // the number of the first; 0: go on
  std::atomic<bool> from_terminal = false;  // a key of a terminal sent it, to its shell too
  std::atomic<bool> stepping = false;   // the first step is near: there may be something to save from here
  std::atomic<bool> open_line = false;  // the progress line stands on the terminal without its end
};

}  // namespace heddle
