// The buffers that gradients are packed into to be summed: two in turn, each as large as the largest group.
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

// Of the parameters of one stage that are summed over the same ranks. Reductions are finished in the order in
// which they start, with at most two in flight.
class ReduceBuffers {
 public:
  explicit ReduceBuffers(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  // Called by every group once, before the first reduction: its number of elements per rank; `like` gives
  // dtype and device.
  void expect(const at::Tensor& like, int64_t part);

  size_t take_turn() { return turn_ = 1 - turn_; }  // 0 or 1: which of the two
  Communicator& ranks() const { return *ranks_; }
  // The start of a buffer: of all ranks' parts, which they read in place if they share memory; of one part.
  at::Tensor input(size_t turn, const at::Tensor& like, int64_t part);
  at::Tensor output(size_t turn, const at::Tensor& like, int64_t part);

 private:
  struct Line {  // of one dtype and device
    at::Tensor like;
    int64_t largest = 0;
    std::array<at::Tensor, 2> inputs, outputs;  // made when used
  };
  Line& line_of(const at::Tensor& like);

  std::shared_ptr<Communicator> ranks_;
  std::vector<Line> lines_;
  size_t turn_ = 1;
};

}  // namespace heddle::fsdp2
