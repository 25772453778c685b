// How the process of a run takes memory from the system.
#pragma once

#include <malloc.h>
#include <stdlib.h>

namespace heddle::cli {

// A step allocates and frees tensors of many megabytes. By default the C library gives each back to the
// system and takes it anew, in pages of 4 KiB that the kernel clears one by one: a fifth of a step of a
// small mixture of experts. Freed memory stays with the process instead, and LibTorch, which reads the
// variable once, asks for pages of 2 MiB. Call before LibTorch allocates. Values of the user's environment
// stay.
inline void keep_memory_between_steps() {
  ::setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);
  if (::getenv("GLIBC_TUNABLES") != nullptr) return;
  constexpr int kLargest = 256 << 20;  // larger ones are given back, whatever lies behind them in memory
  ::mallopt(M_MMAP_THRESHOLD, kLargest);
  ::mallopt(M_TRIM_THRESHOLD, 2047 << 20);
}

}  // namespace heddle::cli
