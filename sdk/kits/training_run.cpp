// Runs the ranks of a training run, and returns the refusals of a strategy and the strategy `single`.
#include "training_run.h"

#include <algorithm>
#include <cmath>

#include "core/parallel/features.h"
#include "core/parallel/single.h"
#include "rank_run.h"

namespace heddle::kits {

Outcome train(const Subject& subject, const TrainingRun& training) {
  Shared shared(training);
  run_ranks(training.world(), training.device,
            [&](Rendezvous& rendezvous) { RankRun(subject, training, rendezvous, shared).run(); });
  return shared.results.take();
}

void compare(const Outcome& got, const Outcome& want) {
  const auto is_finite = [](double number) { return std::isfinite(number) && number >= 0; };
  if (!std::all_of(want.losses.begin(), want.losses.end(), is_finite) ||
      !std::all_of(want.norms.begin(), want.norms.end(), is_finite))
    found("a loss or a gradient norm of the strategy `single` is not finite, so nothing can be compared");
  const std::string lines = differences(got, want);
  if (!lines.empty()) found("differs from the strategy `single`: " + lines.substr(0, lines.find('\n')));
}

bool has_axis(const Needs& needs, const std::string& axis) {
  return std::find(needs.axes.begin(), needs.axes.end(), axis) != needs.axes.end();
}

std::string refusal(const Subject& subject, const TrainingRun& training) {
  Sizes sizes;
  sizes.world = training.world();
  sizes.dp_shard = training.dp;
  sizes.dp_replicate = training.replicas;
  sizes.dp = training.dp * training.replicas;
  sizes.tp = training.tp;
  sizes.pp = training.pp;
  for (const Refusal& refused : subject.needs.refuses)
    if (sizes.of(refused.axis) > 1) return refused.text;
  for (const char* axis : {"tp", "pp", "dp_replicate"})
    if (sizes.of(axis) > 1 && !has_axis(subject.needs, axis))
      return "its mesh has no axis " + std::string(axis);
  if (training.dp > 1 && !has_axis(subject.needs, "dp") && !has_axis(subject.needs, "dp_shard"))
    return "its mesh has no data-parallel axis";
  if (training.checkpointing == ActivationCheckpointing::selective &&
      std::find(subject.needs.may_use.begin(), subject.needs.may_use.end(), kSelectiveCheckpointing) ==
          subject.needs.may_use.end())
    return "its needs.may_use lacks " + std::string(kSelectiveCheckpointing);
  if (training.restarts && std::find(subject.needs.may_use.begin(), subject.needs.may_use.end(),
                                     kPostValidation) == subject.needs.may_use.end())
    return "its needs.may_use lacks " + std::string(kPostValidation);
  return subject.needs.sizes_rule ? subject.needs.sizes_rule(sizes) : "";
}

Subject single() {
  return {"single", parallel::make_single()->needs(), [] { return parallel::make_single(); }};
}

}  // namespace heddle::kits
