// From model_type to the plugin, and from the plugin to the model.
#include "heddle/engine/engine.h"

#include <algorithm>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/config_keys.h"
#include "lib/checkpoint/huggingface/read_config.h"

namespace heddle::engine {
namespace {

std::string list_of_models(const std::vector<std::string>& known) {
  return known.empty() ? "none" : text::join(known);
}

// The family of a model_type, written exactly as the plugin offers it.
const OfferedModel& family_of(const Node& keys, PluginRegistry& plugins) {
  if (!keys.is_map()) model::refuse(keys, "expected a map of Hugging Face's keys, got " + keys.written());
  const std::vector<std::string> known = plugins.names("model");
  const Node* type = model::given(keys, "model_type");
  if (type == nullptr) model::refuse(keys, "model_type is missing; available: " + list_of_models(known));
  const std::string& name = type->as_text();
  const OfferedModel* offered = plugins.model(name);
  if (offered != nullptr &&
      (offered->name == name ||
       std::find(offered->aliases.begin(), offered->aliases.end(), name) != offered->aliases.end()))
    return *offered;
  std::vector<std::string> searched;
  for (const std::filesystem::path& place : plugins.search_path()) searched.push_back(place.string());
  const std::string near = text::nearest(name, known);
  model::refuse(*type,
                "model_type " + type->written() + " is not built; available: " + list_of_models(known) +
                    " (searched " + (searched.empty() ? "no directory" : text::join(searched)) + ")",
                (near.empty() ? "" : "did you mean " + near + "? Else ") +
                    "name the directory of its plugin under 'plugins:' or in HEDDLE_PLUGIN_PATH");
}

}  // namespace

std::shared_ptr<const ModelSpec> read_model(const Node& keys, PluginRegistry& plugins, UnknownKeys unknown) {
  return family_of(keys, plugins).make()->read(keys, unknown);
}

std::shared_ptr<const ModelSpec> read_model(const std::filesystem::path& config_json,
                                            PluginRegistry& plugins) {
  const Node keys = checkpoint::read_config_json(config_json);
  try {
    return read_model(keys, plugins, UnknownKeys::passed_over);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::config) throw;
    throw Error(ErrorCode::input, error.where(), error.message(), error.hint());
  }
}

}  // namespace heddle::engine
