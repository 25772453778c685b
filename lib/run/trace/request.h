// What `heddle train --trace` asks for.
#pragma once

#include <cstdint>
#include <filesystem>

namespace heddle {

struct TraceRequest {
  std::filesystem::path file;         // empty: no trace
  int64_t first_step = 0, steps = 0;  // from 0; no steps: the second and the third of the run
  bool operators = false;             // LibTorch's profiler beside it
};

}  // namespace heddle
