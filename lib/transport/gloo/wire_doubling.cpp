// Collectives of many ranks in log2(size) messages each way (Bruck et al. 1997): n blocks in a ring of places
// relative to this rank, of which the first few grow to all, or all shrink to the first.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/mesh/sums.h"
#include "lib/transport/gloo/wire_collectives.h"

namespace heddle::mesh {
namespace {

// Divides as combine() does for an average: integers are rounded towards zero.
void divide(char* values, int64_t count, at::ScalarType type, int by) {
  at::Tensor tensor = at::from_blob(values, {count}, type);
  if (at::isIntegralType(type, false))
    tensor.div_(by, "trunc");
  else
    tensor.div_(by);
}

// 16-bit floats are summed in fp32 and rounded once.
at::ScalarType type_of_sums(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

}  // namespace

// blocks[0] is this rank's; then blocks[i] is that of rank (rank_ + i) % size_.
void WireCollectives::gather_blocks(char* blocks, size_t bytes) {
  ++number_;
  for (int held = 1; held < size_; held *= 2) {
    const int more = std::min(held, size_ - held);
    Transfers transfers;
    receive(transfers, blocks + held * bytes, more * bytes, (rank_ + held) % size_);
    send(transfers, blocks, more * bytes, (rank_ - held + size_) % size_);
    wait(transfers);
  }
}

// The reverse of gather_blocks: blocks[i] is this rank's part of the sum of rank (rank_ + i) % size_; then
// blocks[0] is the sum of all parts of this rank's. There is room for another size_ / 2 blocks behind them.
void WireCollectives::reduce_blocks(char* blocks, int64_t count, at::ScalarType type, Reduce reduce) {
  ++number_;
  const size_t bytes = count * at::elementSize(type);
  char* arrived = blocks + size_ * bytes;
  int held = 1;
  while (held * 2 < size_) held *= 2;
  for (; held > 0; held /= 2) {
    const int fewer = std::min(held, size_ - held);
    Transfers transfers;
    receive(transfers, arrived, fewer * bytes, (rank_ - held + size_) % size_);
    send(transfers, blocks + held * bytes, fewer * bytes, (rank_ + held) % size_);
    wait(transfers);
    const std::array<const void*, 2> both = {blocks, arrived};
    combine(blocks, both, fewer * count, type, reduce == Reduce::max ? reduce : Reduce::sum);
  }
  if (reduce == Reduce::average) divide(blocks, count, type, size_);
}

void WireCollectives::all_gather_by_doubling(const Call& call) {
  const size_t bytes = call.in.nbytes(), before = rank_ * bytes;  // of the ranks before this one
  char* blocks = staging(bytes * size_);
  char* out = static_cast<char*>(call.out.mutable_data_ptr());
  if (bytes > 0) std::memcpy(blocks, call.in.const_data_ptr(), bytes);
  gather_blocks(blocks, bytes);
  if (bytes == 0) return;
  std::memcpy(out + before, blocks, bytes * size_ - before);
  std::memcpy(out, blocks + bytes * size_ - before, before);
}

void WireCollectives::reduce_scatter_by_halving(const Call& call) {
  const at::Tensor in = call.in.to(type_of_sums(call.in.scalar_type()));
  const size_t bytes = call.out.numel() * in.element_size(), before = rank_ * bytes;
  char* blocks = staging(bytes * (size_ + size_ / 2));
  const char* parts = static_cast<const char*>(in.const_data_ptr());
  if (bytes > 0) {
    std::memcpy(blocks, parts + before, bytes * size_ - before);
    std::memcpy(blocks + bytes * size_ - before, parts, before);
  }
  reduce_blocks(blocks, call.out.numel(), in.scalar_type(), call.reduce);
  if (bytes > 0) call.out.copy_(at::from_blob(blocks, call.out.sizes(), in.scalar_type()));
}

// Blocks of one size; the last ones may be filled up with zeros, or be of zeros alone.
void WireCollectives::all_reduce_by_halves(const Call& call) {
  const at::ScalarType type = call.in.scalar_type();
  const at::Tensor in = call.in.to(type_of_sums(type));
  const int64_t numel = in.numel(), count = (numel + size_ - 1) / size_;
  const size_t element = in.element_size();
  char* blocks = staging(count * element * (size_ + size_ / 2));
  const auto length = [&](int rank) {
    return static_cast<size_t>(std::clamp(numel - rank * count, int64_t{0}, count));
  };
  const char* parts = static_cast<const char*>(in.const_data_ptr());
  for (int place = 0; place < size_; ++place) {
    const int rank = (rank_ + place) % size_;
    char* block = blocks + place * count * element;
    if (length(rank) > 0) std::memcpy(block, parts + rank * count * element, length(rank) * element);
    std::memset(block + length(rank) * element, 0, (count - length(rank)) * element);
  }
  reduce_blocks(blocks, count, in.scalar_type(), call.reduce);
  const at::Tensor sum = at::from_blob(blocks, {count}, in.scalar_type()).to(type);
  const size_t bytes = sum.nbytes();
  std::memmove(blocks, sum.const_data_ptr(), bytes);
  gather_blocks(blocks, bytes);
  char* out = static_cast<char*>(call.out.mutable_data_ptr());
  for (int place = 0; place < size_; ++place) {
    const int rank = (rank_ + place) % size_;
    if (length(rank) > 0)
      std::memcpy(out + rank * bytes, blocks + place * bytes, length(rank) * sum.element_size());
  }
}

}  // namespace heddle::mesh
