// The hint of a saved model whose plugin is not there.
#include "lib/run/model/prepared_model.h"

#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/huggingface/read_config.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// The configuration of the checkpoint that the model is in; empty: it is in none.
fs::path saved_configuration(const fs::path& weights) {
  for (fs::path at = weights; at.has_relative_path(); at = at.parent_path()) {
    std::error_code ignored;
    if (fs::is_regular_file(at / "config.yaml", ignored)) return at / "config.yaml";
    if (at.filename() != "model" && at.filename() != "consolidated") break;
  }
  return {};
}

std::vector<std::string> plugins_in(const fs::path& file) {
  static const std::array<std::string, 1> kRead = {"plugins"};
  std::vector<std::string> out;
  const Node root = config::read_only(file.string(), kRead);
  const Node* section = root.find("plugins");
  if (section == nullptr || !section->is_list()) return out;
  for (const Node& item : section->items()) out.push_back(item.as_text());
  return out;
}

std::string hint_of(const ModelPlace& place) {
  const std::string option =
      "--config RUN.yaml, with the file of the run, opens the plugins it names; HEDDLE_PLUGIN_PATH=DIR names "
      "their directory";
  const fs::path file = saved_configuration(place.weights);
  const std::vector<std::string> named = file.empty() ? std::vector<std::string>() : plugins_in(file);
  if (named.empty()) return option;
  return "the run that saved it had plugins: " + text::join(named) +
         ", and code that a saved file names is not loaded unasked: " + option;
}

bool is_offered(const fs::path& config_json, PluginRegistry& plugins) {
  const Node keys = checkpoint::read_config_json(config_json);
  const Node* type = keys.find("model_type");
  return type == nullptr || type->kind() != Node::Kind::text || plugins.model(type->as_text()) != nullptr;
}

}  // namespace

std::shared_ptr<const ModelSpec> read_saved_model(const ModelPlace& place, PluginRegistry& plugins) {
  const fs::path file = place.notes / "config.json";
  try {
    return engine::read_model(file, plugins);
  } catch (const ErrorList&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::input || is_offered(file, plugins)) throw;
    throw Error(error.code(), error.where(), error.message(), hint_of(place));
  }
}

}  // namespace heddle
