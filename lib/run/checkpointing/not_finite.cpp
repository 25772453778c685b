// Errors that stop a run with NaN or Inf values.
#include "lib/run/checkpointing/not_finite.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "heddle/checkpoint/sharded.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/train/optimizer/norm.h"

namespace heddle {
namespace {

bool holds_finite(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return std::isfinite(train::sum_of_squares(tensor));
  return std::isfinite(train::sum_of_squares_on_device({tensor}).item<double>());
}

// Whether the tensor has floating-point values; packed weights are bytes.
bool has_reals(const at::Tensor& tensor) {
  return tensor.numel() > 0 && tensor.is_floating_point();
}

std::string first_not_finite(Stages& stages) {
  std::vector<at::Tensor> on_device;
  for (const auto& stage : stages)
    for (const Shard& shard : stage->owned())
      if (has_reals(shard.tensor) && !shard.tensor.is_cpu()) on_device.push_back(shard.tensor.detach());
  // One flag for all tensors is read back; each tensor is checked only if the flag is false.
  const bool device_is_finite =
      on_device.empty() || std::isfinite(train::sum_of_squares_on_device(on_device).item<double>());
  for (const auto& stage : stages)
    for (const Shard& shard : stage->owned())
      if (has_reals(shard.tensor) && !(device_is_finite && !shard.tensor.is_cpu()) &&
          !holds_finite(shard.tensor.detach()))
        return shard.name;
  return "";
}

// Returns the hint for values that are not finite: the steps from `first` on are useless.
std::string how_to_go_back(const RunSpec& run, int64_t first) {
  const std::string change = "lower optimizer.lr or set clip_grad_norm";
  std::string before;
  if (run.recipe.checkpoint.enabled)
    for (const std::filesystem::path& one : checkpoints_in(run.recipe.checkpoint.directory))
      if (*steps_of(one) < first) before = one.filename().string();
  return before.empty()
             ? change
             : change + "; " + before +
                   " was saved before these steps; resume from it with --checkpoint.restore_from " + before;
}

}  // namespace

Error too_many_skipped(const RunSpec& run, const StepInfo& info) {
  const int64_t count = *run.recipe.steps.max_skipped_updates, first = info.step - count + 1;
  const std::string last = std::to_string(info.step + 1);
  return Error(
      ErrorCode::diverged, "step_scheduler.max_skipped_updates",
      (count == 1 ? "the update of step " + last + " was skipped"
                  : "the updates of steps " + std::to_string(first + 1) + " to " + last + " were skipped") +
          " because the loss or the gradient norm was nan, inf or too large",
      how_to_go_back(run, first));
}

Error not_saved(const RunSpec& run, const StepInfo& info, const SkippedUpdates& skipped, bool ends) {
  const std::string what =
      "after step " + std::to_string(info.step + 1) + " nothing is saved: " + skipped.why_not_saved(ends);
  return Error(ErrorCode::diverged, "training", what,
               how_to_go_back(run, info.step + 1 - std::max<int64_t>(1, skipped.in_a_row())));
}

void refuse_not_finite(const RunSpec& run, engine::Model& model, const std::optional<StepInfo>& info) {
  const std::string key = "finite/" + (info ? std::to_string(info->step) : "start");
  checkpoint::on_every_rank(model.mesh.rendezvous(), key, [&] {
    const std::string name = first_not_finite(model.stages);
    if (name.empty()) return;
    const std::string what = "the parameter '" + name + "' holds inf or nan";
    if (info)
      throw Error(ErrorCode::diverged, "checkpoint",
                  what + " after step " + std::to_string(info->step + 1) + ": nothing is saved",
                  how_to_go_back(run, info->step));
    throw Error(ErrorCode::input, run.resume ? run.resume->directory.string() : run.model.directory.string(),
                what,
                run.resume ? "resume from an older checkpoint with checkpoint.restore_from"
                           : "give a model whose parameters are finite");
  });
}

}  // namespace heddle
