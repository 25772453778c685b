// Splitting the stacked parameters, and the link around each layer's experts.
#include "parallelizer.h"

#include <ATen/core/grad_mode.h>

#include <set>
#include <string>
#include <tuple>

#include "head.h"
#include "heddle/base/error.h"
#include "heddle/model/module.h"
#include "heddle/nn/router.h"
#include "parts.h"

namespace heddle::moe {
namespace {

constexpr const char* kAxis = "ep";
constexpr const char* kCopies = "tp";  // its ranks hold the same tokens

template <class Kind, class Visitor>
void each(const Units& units, const Visitor& visitor) {
  for (const auto& unit : units) {
    if (unit->module() == nullptr) continue;
    unit->module()->visit("", [&](const std::string& path, Module& module) {
      if (auto* found = dynamic_cast<Kind*>(&module)) visitor(std::string(unit->name()) + "." + path, *found);
    });
  }
}

// On meta only a shape is left; else a copy, so that the whole is freed.
at::Tensor part_of(const at::Tensor& whole, int64_t begin, int64_t count) {
  at::NoGradGuard no_gradients;
  return whole.detach().narrow(0, begin, count).clone(at::MemoryFormat::Contiguous);
}

}  // namespace

Needs ExpertParallel::needs() const {
  Needs needs;
  needs.axes = {kAxis};
  return needs;
}

void ExpertParallel::check_fields() const {
  const auto refuse = [](const std::string& key) {
    throw Error(ErrorCode::config, "distributed.moe." + key,
                "the strategy has no field " + key + " that the block could change",
                "leave it out of the block, or use strategy: fsdp2");
  };
  if (config_.moe.reshard_after_forward && is_absent(config_.reshard_after_forward))
    refuse("reshard_after_forward");
  if (config_.moe.mp_policy && is_absent(config_.mp_policy)) refuse("mp_policy");
}

void ExpertParallel::check(Units& units, const Sizes& sizes) {
  if (sizes.ep == 1) return;
  bool any = false;
  each<Experts>(units, [&](const std::string& path, Experts& experts) {
    any = true;
    const int64_t count = experts.shape().experts;
    if (count % sizes.ep != 0)
      throw Error(ErrorCode::mesh, "distributed.ep_size",
                  "the number of experts (" + std::to_string(count) + " in '" + path +
                      "') must be divisible by ep_size (" + std::to_string(sizes.ep) + ")",
                  "choose an ep_size that divides " + std::to_string(count));
  });
  if (!any)
    throw Error(ErrorCode::config, "distributed.ep_size",
                "ep_size is " + std::to_string(sizes.ep) + ", and the model has no experts",
                "set ep_size: 1, or train a model with experts");
  check_fields();
  check_head(units, config_.moe);
}

const Dispatcher& ExpertParallel::dispatcher(int64_t choices, int ranks) const {
  const bool gathers = config_.moe.dispatcher == "auto" ? choices >= ranks && !config_.moe.pad_to_capacity
                                                        : config_.moe.dispatcher == "allgather";
  return gathers ? *gathered_ : *traded_;
}

int64_t ExpertParallel::room(int64_t tokens, int64_t choices, int64_t experts) const {
  return config_.moe.capacity_factor ? capacity_of(tokens, choices, experts, *config_.moe.capacity_factor)
                                     : 0;
}

Keeps ExpertParallel::keeps() const {
  return config_.moe.drop_by == "position" ? Keeps::first : Keeps::largest_weights;
}

Experts::Instead::LinkPointer ExpertParallel::link(const DeviceMesh& mesh) {
  Communicator* const copies = mesh.size(kCopies) > 1 ? &mesh.group(kCopies) : nullptr;
  const int ranks = mesh.size(kAxis);
  const auto around = [this, copies, ranks](const at::Tensor& x, const model::Routing& chosen,
                                            Experts& experts, const Batch& batch, model::Meanwhile& meanwhile,
                                            const Local& local) {
    const Dispatcher& way = dispatcher(chosen.experts.size(1), ranks);
    const int64_t most = room(x.size(0), chosen.experts.size(1), experts.shape().experts);
    const int64_t padding = config_.moe.pad_to_capacity ? most : 0;
    const model::Routing routing =
        most == 0 ? chosen : within_capacity(chosen, experts.shape().experts, most, keeps());
    if (copies == nullptr) return way.run(x, routing, experts, batch, meanwhile, local, padding);
    model::Routing part;
    at::Tensor own;
    std::tie(own, part.weights) = own_part(x, routing.weights, *copies);
    part.experts = own_part(routing.experts, *copies);
    return whole_of_parts(way.run(own, part, experts, batch, meanwhile, local, padding), x.size(0), *copies);
  };
  return Experts::Instead::around("moe", 0, around);
}

std::vector<Placed> ExpertParallel::apply(Units& units, const DeviceMesh& mesh) {
  if (mesh.size(kAxis) == 1) return {};
  set_head_precision(units, config_.moe);
  gathered_ = make_gathered(mesh.group(kAxis));
  traded_ = make_traded(mesh.group(kAxis));
  const auto own = link(mesh);
  std::set<const at::Tensor*> stacked;
  each<Experts>(units, [&](const std::string&, Experts& experts) {
    experts.instead.add(own);
    for (const ParameterSlot& slot : experts.slots()) stacked.insert(slot.tensor);
  });
  std::vector<Placed> placed;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      if (stacked.count(slot.tensor) == 0) continue;
      const int64_t whole = slot.tensor->size(0), count = whole / mesh.size(kAxis);
      const int64_t begin = count * mesh.rank(kAxis);
      slot.point(part_of(*slot.tensor, begin, count));
      placed.push_back({slot.name, kAxis, 0, begin, whole});
    }
  return placed;
}

}  // namespace heddle::moe
