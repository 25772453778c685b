// Parts of a step that are not its order: sums in flight, and the record of where time goes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "heddle/mesh/communicator.h"
#include "heddle/model/batch.h"
#include "heddle/train/step.h"

namespace heddle::train {

// Labels that count, of all batches. Throws Error{internal} for a batch without labels.
int64_t label_tokens(std::span<const Batch> batches);

// Throws Error{config} where an update cannot be made before the norm of all stages is known. where: the
// configuration's block; sum: GradientNorm::is_a_sum().
void check_post_validation(const std::string& where, bool sum, const IOptimizer& optimizer);
// The same before there are gradients. norm_type: p of the norm.
HEDDLE_API void check_can_undo(const std::string& where, const IOptimizer& optimizer, double norm_type = 2);

// Records the parts of a step; does nothing without a recording.
class Phases {
 public:
  explicit Phases(Recording* recording) : recording_(recording) {
    if (recording_ != nullptr) since_ = std::chrono::steady_clock::now();
  }
  void end(const char* name) {
    if (recording_ == nullptr) return;
    const auto now = std::chrono::steady_clock::now();
    recording_->phases.push_back({name, std::exchange(since_, now), now});
  }

 private:
  Recording* recording_;
  RanAction::Time since_;
};

// One or two small numbers, or a tensor of them, that all ranks of a group add up, in flight while the step
// goes on.
class Total {
 public:
  // On the CPU, also where parameters are not: it is read in the middle of the step.
  Total(double mine, Communicator* group);
  // Two numbers, in one collective.
  Total(double first, double second, Communicator* group);
  Total(at::Tensor mine, Communicator* group);
  at::Tensor get();
  double number(int64_t index) { return get().const_data_ptr<double>()[index]; }

 private:
  void start(Communicator* group);
  at::Tensor value_;
  std::unique_ptr<Work> work_;
};

}  // namespace heddle::train
