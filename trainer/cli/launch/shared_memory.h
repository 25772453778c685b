// Memory that a launcher shares with the ranks that it forks.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "heddle/base/error.h"

namespace heddle::launch {

// Returns zeroed memory. Throws Error{internal} if it cannot be allocated.
inline void* shared_memory(size_t bytes) {
  void* const shared = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    throw Error(ErrorCode::internal, "launch",
                std::string("cannot allocate shared memory: ") + std::strerror(errno));
  return shared;
}

}  // namespace heddle::launch
