// RankRun, one rank of a training run: its stages, the steps, and the checks between steps.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/stages.h"
#include "heddle/train/step.h"
#include "lib/testing/training.h"
#include "lib/train/runner.h"
#include "training_run.h"

namespace heddle::kits {

// The combined results of all ranks of a training run.
struct Shared {
  explicit Shared(const TrainingRun& training) : held(static_cast<size_t>(training.steps)) {
    if (training.adamw) return;
    results.gradients.resize(static_cast<size_t>(training.steps));
    results.common.losses.resize(static_cast<size_t>(training.steps));
  }
  Results results;
  std::deque<WholeTensors> held;  // per step, the whole parameters that Unsharded is compared with
};

class RankRun {
 public:
  RankRun(const Subject& subject, const TrainingRun& training, Rendezvous& rendezvous, Shared& shared);
  void run();

 private:
  Stages build(const Subject& subject);
  std::vector<Batch> batches(int64_t step) const;
  // Returns a loss without gradients: of all rows, or the sum over this rank's rows.
  double evaluate(int64_t step);
  double forward_by_hand(int64_t step);
  double backward_by_hand(const std::vector<Batch>& mine, double scale);
  void plain_step(int64_t index);
  void take_gradient(const Shard& shard, WholeTensors& into);
  void run_adamw();
  void run_plain();

  RankTensors held();  // the rank's own tensors, not copies
  void resume();
  void keep();
  void check_list();  // every name must be listed
  Named values();     // of the shards by index, because names may repeat
  void write(const Named& values);
  void reload(const Named& first, double before);
  // Checks that every rank gets all parameters, with the values of the owned shards of all ranks.
  void unshard(size_t index);
  bool differs(const std::string& parameter);  // whether its values differ between ranks
  at::Tensor part_of(const at::Tensor& whole, const at::Tensor& held) const;
  void after_step(int64_t index);

  const TrainingRun& training_;
  Shared& shared_;
  Rendezvous& rendezvous_;
  DeviceMesh mesh_;
  Stages stages_;
  Step* step_ = nullptr;                 // with adamw
  std::optional<train::Runner> runner_;  // without adamw
};

}  // namespace heddle::kits
