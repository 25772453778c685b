// Collectives of every kind, dtype and odd size on one group, and what a plain loop over the ranks expects.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "heddle/mesh/call.h"

namespace heddle::tests {

// What rank r of the group feeds in: a function of (rank, seed, size, dtype) alone. Floats are small and
// uneven, so that the order of a sum shows in its bits.
at::Tensor input(int rank, int seed, int64_t count, at::ScalarType type);

// The sum or maximum over `size` ranks of input(r, ...), in rank order, 16-bit floats in fp32, element by
// element.
at::Tensor expected(int size, int seed, int64_t count, at::ScalarType type, Reduce reduce);

struct Outcome {
  std::string what;  // "reduce_scatter of 7 Float"
  at::Tensor got, wanted;
};

// Whether receives of a pair may be called in another order than its sends: not on a device.
enum class Tags { any_order, one_order };

// Runs every collective with every dtype and size on the group; one outcome for each.
std::vector<Outcome> exercise(Communicator& group, Tags tags = Tags::any_order);

// The call again on another group, of `out` and `in` in the place of its own tensors.
std::unique_ptr<Work> repeat(Communicator& group, const mesh::Call& call, const at::Tensor& out,
                             const at::Tensor& in);

// The bytes of all results in order.
std::string bytes(const std::vector<Outcome>& outcomes);

// Same dtype and bits.
bool same(const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle::tests
