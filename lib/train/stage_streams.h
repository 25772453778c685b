// Streams of a device for the stages of one rank, so that a schedule's overlapped actions run together.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <cstddef>
#include <span>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::train {

// Each stage computes on a stream of its own, forward and backward: autograd runs a backward on the stream of
// its forward, so two actions of two stages wait for each other only where they hand over tensors. The host
// enqueues one action after the other, in the order of the table, on every rank alike. On the CPU there are
// no streams, and nothing happens.
class HEDDLE_API StageStreams {
 public:
  StageStreams() = default;
  StageStreams(c10::Device device, size_t stages);
  bool empty() const { return streams_.empty(); }

  // The scope in which work goes to the stage's stream; empty: to the current one.
  c10::OptionalStreamGuard scope(size_t stage) const;
  // What `from` has enqueued so far is done before what `to` enqueues next. The memory of `tensors`, which
  // move to `to`, is not used again before the work on them that `to` has enqueued when they are freed.
  void hand_over(size_t from, size_t to, std::span<const at::Tensor> tensors) const;
  // The same from the current stream to every stage, and back.
  void fork() const;
  void join() const;

 private:
  c10::Device device_ = c10::kCPU;
  std::vector<c10::Stream> streams_;
};

}  // namespace heddle::train
