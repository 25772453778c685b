// Assignment of a unit's parameters to groups, and placement of frozen units.
#include "model.h"

#include <algorithm>
#include <utility>

namespace heddle::fsdp2 {
namespace {

using sharding::Slots;

bool alike(const ParameterSlot& one, const ParameterSlot& other) {
  return one.tensor->scalar_type() == other.tensor->scalar_type() && one.compute == other.compute &&
         (one.tensor->dim() == 0) == (other.tensor->dim() == 0);
}

bool all_frozen(const Slots& slots) {
  return !slots.empty() &&
         std::none_of(slots.begin(), slots.end(), [](const ParameterSlot& slot) { return slot.trainable(); });
}

// Returns true for small frozen values in a dtype that the layer chose (the correction bias of a router): a
// separate gather would cost more than their memory. Also for parameters without dims, which cannot be split
// (CLIP's logit_scale).
bool stays_whole(const Slots& part) {
  if (part.front().tensor->dim() == 0) return true;
  const auto small = [](const ParameterSlot& slot) { return slot.tensor->dim() == 1; };
  return part.front().compute.has_value() && all_frozen(part) && std::all_of(part.begin(), part.end(), small);
}

// Splits slots by dtypes and reductions, in order of appearance.
std::vector<Slots> by_kind(Slots slots, const Places& places) {
  std::vector<Slots> parts;
  for (ParameterSlot& slot : slots) {
    auto part = parts.begin();
    while (part != parts.end() && !(alike(part->front(), slot) &&
                                    places(part->front().name).groups.axes == places(slot.name).groups.axes))
      ++part;
    if (part == parts.end()) part = parts.insert(part, Slots());
    part->push_back(std::move(slot));
  }
  return parts;
}

}  // namespace

sharding::Model make_model(Units units, std::span<const Placed> placed, const Places& places,
                           std::vector<sharding::Reshard> reshard, Frozen frozen) {
  std::vector<std::unique_ptr<sharding::Bucket>> groups;
  std::vector<Slots> fresh = sharding::new_slots(units);
  for (size_t i = 0; i < units.size(); ++i) {
    const bool is_frozen = all_frozen(units[i]->parameters());
    if (is_frozen && frozen == Frozen::root) reshard[i] = sharding::Reshard::after_last_backward;
    for (Slots& part : by_kind(std::move(fresh[i]), places)) {
      Place where = places(part.front().name);
      where.split = !(is_frozen && frozen == Frozen::replicate) && !stays_whole(part);
      groups.push_back(std::make_unique<Group>(std::move(part), placed, where));
    }
  }
  // Gradients arrive in reverse order of use.
  std::reverse(groups.begin(), groups.end());
  return sharding::Model(std::move(units), std::move(groups), std::move(reshard), "fsdp2");
}

std::vector<char> pinned_units(const sharding::Model& model) {
  std::vector<char> pinned;
  for (const auto& turn : model.turns)
    pinned.push_back(!turn.uses.empty() &&
                     std::all_of(turn.uses.begin(), turn.uses.end(),
                                 [](const auto& use) { return group_of(*use.bucket).pinned(); }));
  return pinned;
}

void wait_for_moved_gradients(const sharding::Model& model) {
  for (const auto& bucket : model.buckets)
    if (bucket->gradients() != nullptr && static_cast<Gradients*>(bucket->gradients())->moves())
      return wait_for(group_of(*bucket).device());
}

}  // namespace heddle::fsdp2
