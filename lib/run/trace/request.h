// Options of `heddle train --trace`.
#pragma once

#include <cstdint>
#include <filesystem>

namespace heddle {

struct TraceRequest {
  std::filesystem::path file;  // empty: no trace
  // first_step counts from 0; 0 steps: the second and the third step of the run
  int64_t first_step = 0, steps = 0;
  bool operators = false;  // record operators with LibTorch's profiler too
};

}  // namespace heddle
