// What the outside asks of a run that is under way.
#pragma once

#include <atomic>

namespace heddle {

// Written by signals, read by ranks. Those of one machine and their launcher may share one.
struct StopWish {
  std::atomic<int> signal = 0;         // the number of the first; 0: go on
  std::atomic<bool> stepping = false;  // the first step is near: from here on there may be something to save
};

}  // namespace heddle
