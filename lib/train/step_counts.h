// Counts of a step: label tokens, sums over ranks in flight, and the recording of phases.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "heddle/mesh/communicator.h"
#include "heddle/mesh/rendezvous.h"
#include "heddle/model/batch.h"
#include "heddle/ops/compute_log.h"
#include "heddle/train/step.h"

namespace heddle::train {

// Labels that count, of all batches. Throws Error{internal} for a batch without labels.
int64_t label_tokens(std::span<const Batch> batches);

// Throws Error{config} where an update cannot be made before the norm of all stages is known. where: the
// configuration's block; sum: GradientNorm::is_a_sum().
void check_post_validation(const std::string& where, bool sum, const IOptimizer& optimizer);
// Checks before there are gradients. norm_type: p of the norm.
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
    recording_->phases.push_back({name, std::exchange(since_, now), now, record_moment()});
  }

 private:
  Recording* recording_;
  RanAction::Time since_;
};

// A tensor of small numbers that all ranks of a group add up, in flight while the step goes on.
class Total {
 public:
  // group: null for one rank.
  Total(at::Tensor mine, Communicator* group);
  at::Tensor get();

 private:
  at::Tensor value_;
  std::unique_ptr<Work> work_;
};

// Counts of the batches of one rank in a step.
struct BatchCounts {
  int64_t label_tokens = 0;
  int64_t with_text = 0;  // microbatches that are not only padding
  int64_t microbatches = 0;
};

// Sums BatchCounts over all ranks, in one collective of the CPU that is in flight while the step goes on.
class StepCounts {
 public:
  // ranks: all ranks of the run; null: there is one. is_first: of the ranks that hold the same samples, the
  // first adds its label tokens and text.
  StepCounts(const BatchCounts& mine, Communicator* ranks, bool is_first);
  // Sums over all samples. They wait for the collective.
  double label_tokens() { return sum(0); }
  double with_text() { return sum(1); }
  // Throws Error{mesh} on every rank, naming the ranks and their counts, where the ranks have different
  // numbers of microbatches: the ranks then call different collectives and would wait for each other. Waits
  // for the collective once. A rank without any microbatch throws alone, as the other ranks may wait for it.
  void check_equal(Rendezvous& rendezvous);

 private:
  double sum(int index) { return total_.get().const_data_ptr<double>()[index]; }

  const BatchCounts mine_;
  const int ranks_;
  bool is_checked_ = false;
  Total total_;
};

}  // namespace heddle::train
