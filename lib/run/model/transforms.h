// The transforms of a run: made from their sections, in the order in which they act.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/parallel/build.h"
#include "heddle/plugin/transform.h"
#include "lib/run/model/find_model.h"
#include "lib/run/recipe/plugin_sections.h"

namespace heddle {

struct ActiveTransform {
  std::string name;
  TransformRun run;
  std::shared_ptr<const ITransform> transform;
  std::string setting;                         // for warnings when a run resumes with another
  Node other;                                  // the section of its other model; null: it has none
  std::optional<ModelPlace> other_place = {};  // the files of that model; empty: random weights, or none
};

// The sections of the models of OfferedTransform::model_field.
std::vector<Node> other_models(const std::vector<PluginSection>& sections);

// Of a setting, what gives the added parameters their meaning (ITransform::setting).
inline std::string_view meaning_of(std::string_view setting) {
  return setting.substr(0, setting.find(';'));
}

// Of the sections that turn on a transform.
std::vector<ActiveTransform> make_transforms(const std::vector<PluginSection>& sections, uint64_t seed);

// Throws Error{config} at the size of an axis that a transform refuses.
void refuse_axes(const std::vector<PluginSection>& sections, const Setup& setup);

// `base` with the parameters of Transformed::derived: each is computed from what `base` reads of another one,
// or from that one's Init with the seed, in the CPU's memory and one at a time. Without such parameters it is
// `base`.
ParameterSource with_derived(ParameterSource base, const std::vector<Transformed>& changes, uint64_t seed);

}  // namespace heddle
