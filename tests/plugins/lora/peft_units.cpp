// Reads sections with the plugin's schema.
#include "plugins/lora/peft_units.h"

#include <ATen/core/TensorBody.h>

#include <deque>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "lib/run/model/transforms.h"
#include "tests/core/engine/setups.h"

namespace heddle::tests {
Recipe read_peft(const std::string& section) {
  Recipe recipe =
      read_recipe(config::read_text("model: {config: {model_type: llama}}\npeft: " + section, "run.yaml"));
  recipe = with_plugin_sections(std::move(recipe), built_plugins());
  recipe.errors.raise();
  return recipe;
}

std::shared_ptr<const ModelSpec> spec_of_keys(const std::string& keys) {
  return engine::read_model(config::read_text(keys, "config.json"), built_plugins());
}

Units units_of(const std::string& keys) {
  return spec_of_keys(keys)->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat));
}

Transformed adapt(Units& units, const std::string& section, const ModelSpec* spec) {
  const Recipe recipe = read_peft(section);
  Transformed out;
  std::vector<ActiveTransform> transforms = make_transforms(recipe.sections, 0);
  for (ActiveTransform& one : transforms) {
    one.run.spec = spec;
    out = one.transform->apply(units, one.run);
  }
  return out;
}

std::vector<std::string> adapted(const std::string& keys, const std::string& section) {
  try {
    const auto spec = spec_of_keys(keys);
    Units units = spec->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat));
    std::vector<std::string> out;
    const std::string end = ".lora_A.weight";
    for (const std::string& name : adapt(units, section, spec.get()).added)
      if (name.ends_with(end)) out.push_back(name.substr(0, name.size() - end.size()));
    return out;
  } catch (const Error& error) {
    return {error.what()};
  }
}

}  // namespace heddle::tests
