// Every collective with every dtype and odd sizes on one group, and the result of a plain loop over ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "heddle/mesh/call.h"

namespace heddle::tests {

// Returns the input of a rank, a function of (rank, seed, size, dtype). The floats are small and uneven, so
// that the summation order changes the bits.
at::Tensor input(int rank, int seed, int64_t count, at::ScalarType type);

// Returns the elementwise sum or maximum of input(r, ...) over `size` ranks, in rank order, with 16-bit
// floats accumulated in float32.
at::Tensor expected(int size, int seed, int64_t count, at::ScalarType type, Reduce reduce);

struct Outcome {
  std::string what;  // "reduce_scatter of 7 Float"
  at::Tensor got, wanted;
};

// Whether receives may be posted in another order than the sends of the pair. Devices require one order.
enum class Tags { any_order, one_order };

// Runs every collective with every dtype and size on the group. Returns one outcome per call.
std::vector<Outcome> exercise(Communicator& group, Tags tags = Tags::any_order);

// Repeats the call on another group with the tensors `out` and `in`.
std::unique_ptr<Work> repeat(Communicator& group, const mesh::Call& call, const at::Tensor& out,
                             const at::Tensor& in);

// Returns the bytes of all results in order.
std::string bytes(const std::vector<Outcome>& outcomes);

// Returns whether dtype and bits are equal.
bool same(const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle::tests
