// The checks of a rank between steps.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "heddle/parallel/stages.h"
#include "rank_run.h"

namespace heddle::kits {

void RankRun::check_list() {
  std::vector<std::string> want, got;
  const auto add = [](std::vector<std::string>& to, const std::string& name) {
    if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
  };
  for (const auto& unit : small_model(training_.shape))
    for (const ParameterSlot& slot : unit->parameters()) add(want, slot.name);
  for (const Shard* shard : stages_.shards()) add(got, shard->name);
  for (const std::string& name : want)
    if (std::find(got.begin(), got.end(), name) == got.end())
      found("'" + name + "' is not listed on rank " + std::to_string(rendezvous_.rank()) +
            "; list an empty shard (numel 0) if the rank has no part of it");
}

RankTensors RankRun::held() {
  RankTensors out;
  const auto add = [&](std::string name, at::Tensor tensor) {
    out.names.push_back(std::move(name));
    out.tensors.push_back(std::move(tensor));
  };
  for (Shard* shard : stages_.shards()) add("the shard of '" + shard->name + "'", shard->tensor.detach());
  out.shards = out.tensors.size();
  for (const auto& stage : stages_)
    for (StateTensor& one : stage->state()) add("state() '" + one.name + "'", std::move(one.tensor));
  return out;
}

// Copies the kept tensors of another training run to this rank, as a run resumes from a checkpoint.
void RankRun::resume() {
  const at::NoGradGuard no_gradients;
  const RankTensors to = held(), &from = training_.resumes->ranks.at(rendezvous_.rank());
  if (to.names != from.names)
    found("state() has different names in a new stage: return all tensors from the beginning");
  for (size_t i = 0; i < to.tensors.size(); ++i) {
    if (!to.tensors[i].sizes().equals(from.tensors[i].sizes()))
      found(to.names[i] + " has different sizes in a new stage");
    to.tensors[i].copy_(from.tensors[i]);
  }
  for (const auto& stage : stages_) stage->parameters_changed(ParametersChange::resumed);
}

void RankRun::keep() {
  RankTensors copies = held();
  for (at::Tensor& one : copies.tensors) one = one.to(at::kCPU).clone();
  const std::lock_guard lock(training_.keeps->mutex);
  training_.keeps->ranks[rendezvous_.rank()] = std::move(copies);
}

Named RankRun::values() {
  const at::NoGradGuard no_gradients;
  Named out;
  size_t i = 0;
  for (Shard* shard : stages_.shards()) out[std::to_string(i++)] = shard->tensor.detach().clone();
  return out;
}

void RankRun::write(const Named& values) {
  const at::NoGradGuard no_gradients;
  size_t i = 0;
  for (Shard* shard : stages_.shards()) shard->tensor.detach().copy_(values.at(std::to_string(i++)));
  for (const auto& stage : stages_) stage->parameters_changed(ParametersChange::begun);
}

void RankRun::reload(const Named& first, double before) {
  const Named now = values();
  (void)evaluate(0);  // gathers of the last update read the shards until a forward waits for them
  write(first);
  const double again = evaluate(0);
  write(now);
  if (std::abs(again - before) > 1e-6 * std::abs(before))
    found(
        "the forward does not use the initial values that core wrote to the owned shards before "
        "parameters_changed(): its loss differs by " +
        written(std::abs(again - before) / std::abs(before)));
}

// Returns the part of a parameter that LayerSplit left on this rank.
at::Tensor RankRun::part_of(const at::Tensor& whole, const at::Tensor& held) const {
  if (training_.tp == 1 || held.sizes().equals(whole.sizes()) || whole.dim() == 0) return whole;
  const int64_t rows = whole.size(0), rank = mesh_.rank("tp"), first = rank * rows / training_.tp;
  return whole.narrow(0, first, (rank + 1) * rows / training_.tp - first);
}

bool RankRun::differs(const std::string& parameter) {
  const std::vector<Shard*> shards = stages_.shards();
  return std::any_of(shards.begin(), shards.end(),
                     [&](const Shard* shard) { return shard->name == parameter && !shard->differs.empty(); });
}

void RankRun::unshard(size_t index) {
  const double plain = forward_by_hand(0);
  for (Shard* shard : stages_.shards()) shared_.held[index].add(mesh_, *shard, shard->tensor);
  rendezvous_.barrier("kit: held");
  Named want = shared_.held[index].take("the parameter");
  const Unsharded whole(stages_);
  for (const WholeParameter& parameter : whole.parameters()) {
    const auto expected = want.find(parameter.name);
    if (expected == want.end())
      found("hold_whole() returns '" + parameter.name + "' twice, or no shard has this name");
    const at::Tensor held = parameter.tensor.to(at::kCPU);
    if (differs(parameter.name)) {
      want.erase(expected);
      continue;
    }
    const at::Tensor part = part_of(expected->second, held);
    if (!held.sizes().equals(part.sizes()))
      found("hold_whole() returns only a part of '" + parameter.name + "'");
    if (part.numel() > 0 &&
        !((held - part).abs().max().item<double>() <= 1e-4 * part.abs().max().item<double>()))
      found("hold_whole() returns other values of '" + parameter.name + "' than the owned shards");
    want.erase(expected);
  }
  if (!want.empty()) found("hold_whole() does not return '" + want.begin()->first + "'");
  if (forward_by_hand(0) != plain)
    found("a forward between hold_whole() and release_whole() has another loss");
}

}  // namespace heddle::kits
