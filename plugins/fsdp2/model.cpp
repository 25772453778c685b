// Turns units into groups: one for each pair of dtypes (of storage, of compute) and each axis of shards of a
// unit's own parameters, tied parameters once.
#include "model.h"

#include <map>
#include <string>
#include <utility>

namespace heddle::fsdp2 {

namespace {

bool alike(const ParameterSlot& one, const ParameterSlot& other) {
  return one.tensor->scalar_type() == other.tensor->scalar_type() && one.compute == other.compute;
}

bool all_frozen(const std::vector<ParameterSlot>& slots) {
  return !slots.empty() &&
         std::none_of(slots.begin(), slots.end(), [](const ParameterSlot& slot) { return slot.trainable(); });
}

}  // namespace

struct Model::Maker {
  Model& model;
  std::span<const Placed> placed;
  const Places& places;
  Frozen frozen;
  std::map<std::string, std::pair<Group*, size_t>> owners;  // a name, its group and its place there

  bool together(const ParameterSlot& one, const ParameterSlot& other) const {
    return alike(one, other) && places(one.name).axis == places(other.name).axis;
  }

  // Groups of a unit's new parameters, in order of appearance.
  std::vector<std::vector<ParameterSlot>> split(const std::vector<ParameterSlot>& slots) const {
    std::vector<std::vector<ParameterSlot>> parts;
    std::map<std::string, bool> seen;
    for (const ParameterSlot& slot : slots) {
      if (owners.count(slot.name) != 0 || std::exchange(seen[slot.name], true)) continue;
      auto part = parts.begin();
      while (part != parts.end() && !together(part->front(), slot)) ++part;
      if (part == parts.end()) part = parts.insert(part, std::vector<ParameterSlot>());
      part->push_back(slot);
    }
    return parts;
  }

  void add_group(std::vector<ParameterSlot> slots, Run& run, const Place& place) {
    Group& group = model.groups.emplace_back(std::move(slots), placed, place);
    group.stay = run.stay;
    run.groups.push_back(&group);
    if (group.trainable() > 0) model.gradients.emplace_back(group, place);
    for (size_t i = 0; i < group.parameters().size(); ++i) {
      const Shard& shard = group.parameters()[i].shard;
      owners.emplace(shard.name, std::make_pair(&group, i));
      model.shards.push_back(shard);
    }
  }

  // A further slot of a parameter computes with the owner's leaf.
  void tie(ParameterSlot& slot, Run& run) {
    auto& [group, index] = owners.at(slot.name);
    if (!run.uses(group)) run.groups.push_back(group);
    const at::Tensor& leaf = group->parameters()[index].leaf;
    if (slot.tensor->is_same(leaf)) return;
    if (slot.foreign)
      throw Error(
          ErrorCode::input, "fsdp2",
          "parameter '" + slot.name + "' has two slots with two tensors, which cannot be tied in place",
          "let both modules hold one tensor, or give the slots two names");
    slot.point(leaf);
  }

  void add_unit(Unit& unit, Stay stay) {
    std::vector<ParameterSlot> slots = unit.parameters();
    if (all_frozen(slots) && frozen == Frozen::root) stay = Stay::until_last_backward;
    Run run{&unit, {}, stay};
    for (auto& part : split(slots)) {
      Place where = places(part.front().name);
      if (all_frozen(slots) && frozen == Frozen::replicate) where.ranks = 1, where.rank = 0;
      add_group(std::move(part), run, where);
    }
    for (ParameterSlot& slot : slots) tie(slot, run);
    for (Group* group : run.groups) ++group->users;
    run.pinned = !run.groups.empty() && std::all_of(run.groups.begin(), run.groups.end(),
                                                    [](const Group* group) { return group->pinned(); });
    model.runs.push_back(std::move(run));
  }
};

Model::Model(Units units, std::span<const Placed> placed, const Places& places, std::vector<Stay> stays,
             Frozen frozen)
    : units_(std::move(units)) {
  Maker maker{*this, placed, places, frozen, {}};
  for (size_t i = 0; i < units_.size(); ++i) maker.add_unit(*units_[i], stays[i]);
}

void Model::place_gradients() {
  const Gradients* moving = nullptr;
  for (Gradients& one : gradients) {
    one.place();
    if (one.moves()) moving = &one;
  }
  if (moving != nullptr) wait_for(moving->group().device());
}

std::vector<WholeParameter> Model::whole() {
  std::vector<WholeParameter> all;
  for (Group& group : groups)
    for (const Parameter& parameter : group.parameters())
      all.push_back({parameter.shard.name, parameter.leaf.detach()});
  return all;
}

}  // namespace heddle::fsdp2
