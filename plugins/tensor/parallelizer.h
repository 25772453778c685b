// Tensor and sequence parallelism, as a parallelizer of the axis tp.
#pragma once

#include <utility>
#include <vector>

#include "config.h"
#include "heddle/sdk.h"

namespace heddle::tensor {

// Splits linear layers, the vocabulary and the loss by a plan (Shoeybi et al. 2019). With sequence
// parallelism, hidden states between split layers are token rows (Korthikanti et al. 2022).
class Tensor : public IParallelizer {
 public:
  explicit Tensor(Config config) : config_(std::move(config)) {}
  Needs needs() const override;
  // Throws Error{config | mesh | input} for plans that do not match and heads that do not divide.
  void check(Units& units, const Sizes& sizes) override;
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;

 private:
  Config config_;
};

}  // namespace heddle::tensor
