// Buffers that gradients are packed into for reduction: two in turn, each as large as the largest group.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "heddle/mesh/communicator.h"

namespace heddle::fsdp2 {

// Buffers of the parameters of a stage that are summed over the same ranks. Reductions finish in the order in
// which they start, with at most two in flight.
class ReduceBuffers {
 public:
  explicit ReduceBuffers(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  // Registers a group's number of elements per rank. Every group calls it once before the first reduction.
  // `like` gives dtype and device.
  void expect(const at::Tensor& like, int64_t part);

  size_t take_turn() { return turn_ = 1 - turn_; }  // index of the buffer to use next
  Communicator& ranks() const { return *ranks_; }
  // Start of the input buffer, which holds the parts of all ranks. Ranks that share memory read their parts
  // in place.
  at::Tensor input(size_t turn, const at::Tensor& like, int64_t part);
  at::Tensor output(size_t turn, const at::Tensor& like, int64_t part);

 private:
  struct Buffers {  // buffers of one dtype and device
    at::Tensor like;
    int64_t largest = 0;
    std::array<at::Tensor, 2> inputs, outputs;  // allocated on first use
  };
  Buffers& buffers_like(const at::Tensor& like);

  std::shared_ptr<Communicator> ranks_;
  std::vector<Buffers> buffers_;
  size_t turn_ = 1;
};

}  // namespace heddle::fsdp2
