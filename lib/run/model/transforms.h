// The transforms of a run, made from their sections, in the order of application.
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
  std::string setting;                         // for warnings when a resumed run has another setting
  Node other_model;                            // section of the transform's other model; null: none
  std::optional<ModelPlace> other_place = {};  // files of that model; empty: random weights, or no model
};

// Returns the sections of the models of OfferedTransform::model_field.
std::vector<Node> other_models(const std::vector<PluginSection>& sections);

// Returns the part of a setting that gives the added parameters their meaning (ITransform::setting).
inline std::string_view meaning_of(std::string_view setting) {
  return setting.substr(0, setting.find(';'));
}

// Makes the transforms of the sections that turn one on.
std::vector<ActiveTransform> make_transforms(const std::vector<PluginSection>& sections, uint64_t seed);

// Throws Error{config} at the size of an axis that a transform does not support.
void refuse_axes(const std::vector<PluginSection>& sections, const Setup& setup);

// Adds the parameters of Transformed::derived to `base`. Each is computed from the source parameter that
// `base` reads, or from that parameter's Init with the seed, in CPU memory, one at a time. Without derived
// parameters, returns `base`.
ParameterSource with_derived(ParameterSource base, const std::vector<Transformed>& changes, uint64_t seed);

}  // namespace heddle
