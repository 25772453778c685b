// A host's own training loop on the stages that engine::model builds. Gradients and losses equal those of
// heddle::Step under any strategy and parallelizer. A pipeline needs Step, which runs the schedule.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ne.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/model/side_outputs.h"
#include "heddle/parallel/stages.h"
#include "heddle/train/step.h"

namespace embed {

struct Report {
  double loss = 0;  // mean over the label tokens of the global batch
  double norm = 0;  // gradient norm before clipping
  // The update was skipped because the loss or the norm is not finite.
  bool skipped() const { return !std::isfinite(loss) || !std::isfinite(norm); }
};

// Runs the stage on a microbatch and returns the sum of its token losses, one element.
using Forward = std::function<at::Tensor(heddle::ParallelStage& stage, const heddle::Batch& batch)>;

inline at::Tensor run_units(heddle::ParallelStage& stage, const heddle::Batch& batch) {
  return stage.forward({}, batch)[0];
}

class Loop {
 public:
  // max_norm: maximum norm of gradient clipping; 0: no clipping. `forward`: for a model that runs its own
  // units.
  Loop(heddle::Stages& stages, const heddle::DeviceMesh& mesh, double max_norm, Forward forward = run_units)
      : stages_(stages),
        mesh_(mesh),
        norm_(stages.shards(), mesh),
        max_norm_(max_norm),
        forward_(std::move(forward)) {
    const auto& layout = stages.attached().side_outputs;
    if (layout && !layout->empty()) sides_.emplace(layout, mesh.device());
  }

  // Runs one step over this rank's microbatches. All ranks have the same number of microbatches. `update`
  // updates the owned shards from their gradients and resets the gradients to undefined. It is not called if
  // the report is skipped(). In a step without labels, the loss and the gradients are 0.
  Report step(std::vector<heddle::Batch> batches, const std::function<void()>& update) {
    // Counts labels and microbatches of all data-parallel ranks, before parallelizers split the batches.
    double labels = 0;
    for (const heddle::Batch& batch : batches)
      labels += at::ne(batch.labels, heddle::Batch::kIgnore).sum().item<double>();
    labels = std::max(sum(labels, "dp"), 1.0);
    const double microbatches = sum(static_cast<double>(batches.size()), "dp");
    if (sides_) sides_->begin([&](heddle::LossDivisor by) { return share(by, labels, microbatches); });

    heddle::ParallelStage& stage = *stages_.front();
    double loss = 0;
    for (size_t i = 0; i < batches.size(); ++i) {
      if (sides_) batches[i].side_outputs = &*sides_;
      stages_.transform(batches[i], mesh_);                       // context parallelism splits sequences here
      if (i + 1 == batches.size()) stage.expect_last_backward();  // reductions may start
      const at::Tensor mine = forward_(stage, batches[i]) / labels;
      mine.backward();
      loss += mine.item<double>();
    }
    stage.finish_gradients();  // gradients of the global loss, in shard.tensor.grad()

    Report report{sum(loss, "dp_cp"), 0};
    const at::Tensor norm = norm_.measure();
    report.norm = norm.item<double>();
    if (report.skipped()) {
      for (heddle::Shard* shard : stages_.shards()) shard->tensor.mutable_grad().reset();
      return report;
    }
    if (max_norm_ > 0) heddle::train::clip_gradients(stages_.shards(), norm, max_norm_);
    update();
    stage.parameters_changed(heddle::ParametersChange::updated);
    return report;
  }

 private:
  // Returns the factor of the gradient of an auxiliary loss.
  static double share(heddle::LossDivisor by, double labels, double microbatches) {
    if (by == heddle::LossDivisor::one) return 1;
    return 1 / (by == heddle::LossDivisor::label_tokens ? labels : microbatches);
  }
  double sum(double mine, const char* axis) {
    if (mesh_.size(axis) == 1) return mine;
    at::Tensor all = at::full({1}, mine, at::kDouble);
    mesh_.group(axis).all_reduce(all)->wait();
    return all.item<double>();
  }

  heddle::Stages& stages_;
  const heddle::DeviceMesh mesh_;
  heddle::train::GradientNorm norm_;
  double max_norm_;
  Forward forward_;
  std::optional<heddle::SideOutputs> sides_;
};

}  // namespace embed
