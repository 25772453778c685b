// What a strategy refuses, and the difference of two trainings.
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "core/parallel/features.h"
#include "core/parallel/single.h"
#include "course.h"

namespace heddle::kits {
namespace {

double apart(double one, double other) {
  return std::abs(one - other) / std::max(std::abs(other), 1e-30);
}

void compare_series(const std::string& what, const std::vector<double>& got, const std::vector<double>& want,
                    double most) {
  for (size_t i = 0; i < want.size(); ++i)
    if (!(apart(got[i], want[i]) <= most))
      found(what + " of step " + std::to_string(i) + " differs from that of single by " +
            written(apart(got[i], want[i])));
}

void compare_tensors(const std::string& what, const Named& got, const Named& want, double most) {
  for (const auto& [name, tensor] : got)
    if (want.count(name) == 0)
      found("'" + name + "' is in " + what + ", and should not be: no rank computed a gradient of it");
  double overall = 1e-12;
  for (const auto& [name, tensor] : want)
    if (tensor.numel() > 0) overall = std::max(overall, tensor.abs().max().item<double>());
  for (const auto& [name, tensor] : want) {
    const auto found_here = got.find(name);
    if (found_here == got.end()) found("'" + name + "' is missing in " + what);
    if (!found_here->second.sizes().equals(tensor.sizes()))
      found("'" + name + "' has another shape in " + what);
    if (tensor.numel() == 0) continue;
    const double largest = std::max(tensor.abs().max().item<double>(), 1e-3 * overall);
    const double difference = (found_here->second - tensor).abs().max().item<double>() / largest;
    if (!(difference <= most))
      found("'" + name + "' differs in " + what + " by " + written(difference) + " of its largest element");
  }
}

}  // namespace

bool has_axis(const Needs& needs, const std::string& axis) {
  return std::find(needs.axes.begin(), needs.axes.end(), axis) != needs.axes.end();
}

std::string refusal(const Subject& subject, const Course& course) {
  Sizes sizes;
  sizes.world = course.world();
  sizes.dp_shard = course.dp;
  sizes.dp_replicate = course.replicas;
  sizes.dp = course.dp * course.replicas;
  sizes.tp = course.tp;
  sizes.pp = course.pp;
  for (const Refusal& refused : subject.needs.refuses)
    if (sizes.of(refused.axis) > 1) return refused.text;
  for (const char* axis : {"tp", "pp", "dp_replicate"})
    if (sizes.of(axis) > 1 && !has_axis(subject.needs, axis))
      return "its mesh has no axis " + std::string(axis);
  if (course.dp > 1 && !has_axis(subject.needs, "dp") && !has_axis(subject.needs, "dp_shard"))
    return "its mesh has no axis of data parallelism";
  if (course.checkpointing == ActivationCheckpointing::selective &&
      std::find(subject.needs.may_use.begin(), subject.needs.may_use.end(), kSelectiveCheckpointing) ==
          subject.needs.may_use.end())
    return "its needs.may_use lacks " + std::string(kSelectiveCheckpointing);
  if (course.restarts && std::find(subject.needs.may_use.begin(), subject.needs.may_use.end(),
                                   kPostValidation) == subject.needs.may_use.end())
    return "its needs.may_use lacks " + std::string(kPostValidation);
  return subject.needs.sizes_rule ? subject.needs.sizes_rule(sizes) : "";
}

Subject single() {
  return {"single", parallel::make_single()->needs(), [] { return parallel::make_single(); }};
}

void compare(const Outcome& got, const Outcome& want) {
  compare_series("the loss", {got.losses.begin(), got.losses.begin() + 1},
                 {want.losses.begin(), want.losses.begin() + 1}, 2e-5);
  for (size_t i = 0; i < want.gradients.size(); ++i)
    compare_tensors("the gradients of step " + std::to_string(i), got.gradients[i], want.gradients[i],
                    i == 0 ? 1e-4 : 5e-4);  // rounding of the steps before adds up
  compare_series("the gradient norm", got.norms, want.norms, 2e-4);
  compare_series("the loss", got.losses, want.losses, 2e-5);
  for (const auto& [name, values] : want.sides) {
    const auto here = got.sides.find(name);
    if (here == got.sides.end() || here->second.size() != values.size())
      found("the side output '" + name + "' is missing, or has another size");
    compare_series("the side output '" + name + "'", here->second, values, 2e-4);
  }
  // AdamW divides by the root of the squares, which amplifies small differences.
  compare_tensors("the parameters at the end", got.parameters, want.parameters,
                  want.gradients.empty() ? 2e-3 : 1e-4);
}

std::string distance(const Outcome& got, const Outcome& want) {
  double most = 0;
  for (size_t i = 0; i < want.losses.size(); ++i) most = std::max(most, apart(got.losses[i], want.losses[i]));
  return "loss differs by " + written(most);
}

}  // namespace heddle::kits
