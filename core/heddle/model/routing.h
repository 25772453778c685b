// Which experts a router has chosen for each token, and how much each of them weighs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

namespace heddle::model {

struct Routing {
  at::Tensor experts;  // int64 [tokens, k]; -1: none, the choice was dropped or its expert is elsewhere
  at::Tensor weights;  // [tokens, k], fp32 (fp64 in an fp64 model), with a gradient to the router
};

// Work that does not need the experts' outputs, such as a shared expert. Whoever moves tokens calls run()
// while they travel; the layer calls it at the end, and what has run does not run again.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void()> work) : work_(std::move(work)) {}
  void run() {
    if (const auto work = std::exchange(work_, nullptr)) work();
  }

 private:
  std::function<void()> work_;
};

}  // namespace heddle::model
