// Settings of the C library's memory allocator for runs.
#pragma once

#include <malloc.h>
#include <stdlib.h>

namespace heddle::cli {

// A step allocates and frees tensors of many megabytes. By default the C library returns each to the system
// and maps it again in pages of 4 KiB that the kernel clears, which takes a fifth of a step of a small
// mixture of experts. This keeps freed memory in the process and lets LibTorch, which reads the variable
// once, request pages of 2 MiB. Must be called before LibTorch allocates. Values in the user's environment
// take precedence.
inline void keep_memory_between_steps() {
  ::setenv("THP_MEM_ALLOC_ENABLE", "1", /*overwrite=*/0);
  if (::getenv("GLIBC_TUNABLES") != nullptr) return;
  constexpr int kLargest = 256 << 20;  // larger blocks are always returned to the system
  ::mallopt(M_MMAP_THRESHOLD, kLargest);
  ::mallopt(M_TRIM_THRESHOLD, 2047 << 20);
}

}  // namespace heddle::cli
