// Shared by the exchanges: their tensors as bytes, and copies of them.
#pragma once

#include <cstddef>
#include <cstring>

#include "lib/transport/shm/shm_copy.h"
#include "lib/transport/shm/shm_exchange.h"

namespace heddle::mesh {

// A collective of this rank.
struct Sides {
  int rank, size;
  char* out;
  const char* in;
  size_t element;
  at::ScalarType type;
  Reduce reduce;
};

inline void copy(char* to, const char* from, size_t count) {
  if (count > 0 && to != from) std::memcpy(to, from, count);
}

// Into a tensor of `whole` bytes.
inline void copy_out(char* to, const char* from, size_t count, size_t whole) {
  if (whole < kFar) return copy(to, from, count);
  if (to != from) copy_far(to, from, count);
}

inline int pieces(size_t bytes, size_t piece) {
  return static_cast<int>((bytes + piece - 1) / piece);
}

// Exchanges with a sum.
std::unique_ptr<Exchange> make_scatter(const Call& call, const Sides& sides, size_t room);
std::unique_ptr<Exchange> make_reduce(const Call& call, const Sides& sides, size_t room, Memory memory);

}  // namespace heddle::mesh
