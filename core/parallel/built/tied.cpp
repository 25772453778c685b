// Finds tied parameters, and takes apart what one rank's stages share.
#include "core/parallel/built/tied.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::parallel {

std::vector<TiedParameter> tied_parameters(const Units& units, const StageMap& map) {
  std::vector<TiedParameter> all;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < units.size(); ++i)
    for (const ParameterSlot& slot : units[i]->parameters()) {
      const int stage = map.stage_of_unit[i];
      const auto [place, is_new] = places.emplace(slot.name, all.size());
      if (is_new) all.push_back({slot.name, {stage}, !slot.tensor->is_meta(), slot.trainable()});
      TiedParameter& one = all[place->second];
      if (one.stages.back() != stage) one.stages.push_back(stage);
    }
  std::erase_if(all, [](const TiedParameter& one) { return one.stages.size() == 1; });
  return all;
}

void separate_copies(const Units& units, int stage, std::span<const int> earlier,
                     const std::vector<TiedParameter>& tied) {
  std::map<std::string, at::Tensor> own;
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      const auto found = std::find_if(tied.begin(), tied.end(),
                                      [&](const TiedParameter& one) { return one.name == slot.name; });
      if (found == tied.end()) continue;
      const auto shared =
          std::find_first_of(earlier.begin(), earlier.end(), found->stages.begin(), found->stages.end());
      if (shared == earlier.end()) continue;
      if (slot.foreign)
        throw Error(ErrorCode::config, "parallel",
                    "the stages " + std::to_string(*shared) + " and " + std::to_string(stage) +
                        ", which one rank holds, both use '" + slot.name + "' of a foreign module",
                    "choose a schedule with one stage for each rank, or a model without tied parameters");
      at::Tensor& copy = own[slot.name];
      if (!copy.defined())
        copy = slot.tensor->is_meta() ? at::empty_like(*slot.tensor) : slot.tensor->detach().clone();
      slot.point(copy);
    }
}

}  // namespace heddle::parallel
