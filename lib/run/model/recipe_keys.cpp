// Keys that a recipe gives beside config.json's: multi-token prediction heads, and AutoModel's routers.
#include <optional>

#include "heddle/base/error.h"
#include "heddle/decoder/text_family.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "lib/run/model/find_model.h"
#include "lib/run/model/overridden.h"

namespace heddle {
namespace {

bool has_map(const ModelSection& section) {
  return section.source == ModelSection::Source::config && section.config.is_map();
}

// Of the model that a section names.
std::filesystem::path file_of(const ModelSection& section) {
  return section.source == ModelSection::Source::config ? config_file(section.config.as_text())
                                                        : find_model(section.directory).notes / "config.json";
}

// The model that the section describes, without weights.
std::shared_ptr<const ModelSpec> described(const ModelSection& section, PluginRegistry& plugins) {
  std::vector<std::string> ignored;
  if (has_map(section)) return read_map(section, plugins, ignored);
  return section.overrides.empty() ? engine::read_model(file_of(section), plugins)
                                   : read_with_keys(file_of(section), section.overrides.keys, plugins);
}

// The section with a key as if config.json had it, or in its place.
ModelSection with_key(ModelSection section, const std::string& key, const Node& value) {
  const bool inside = has_map(section);
  Node keys = inside ? section.config : section.overrides.keys;
  if (keys.is_null()) keys = Node::map({}, value.mark(), "model.config");
  (inside ? section.config : section.overrides.keys) = keys.without(key).with(key, value);
  return section;
}

// There the keys are a part of the model's signature.
ModelSection with_mtp_keys(ModelSection section, PluginRegistry& plugins) {
  if (section.mtp_keys.is_null()) return section;
  const auto spec = described(section, plugins);
  if (!spec->signature().contains("num_nextn_predict_layers")) {
    if (section.mtp_heads.empty()) return section;
    throw Error(ErrorCode::not_built, section.mtp_heads,
                "the family " + spec->facts().model_type + " has no multi-token prediction heads here",
                "leave num_nextn_predict_layers out: the model then trains on the next token alone");
  }
  for (const auto& [key, value] : section.mtp_keys.entries())
    section = with_key(std::move(section), key, value);
  return section;
}

// A key of the model: the recipe's, else config.json's.
std::optional<Node> key_of(const ModelSection& section, const Node& own, const std::string& key) {
  for (const Node* keys : {&section.overrides.keys, &section.backend, &own})
    if (const Node* found = keys->is_null() ? nullptr : keys->find(key); found != nullptr) return *found;
  return std::nullopt;
}

// Adds the keys of AutoModel's own module of the family to a section that names AutoModel's class. Not where
// a key says otherwise, experts are dealt in turn, or the coefficient is 0.
ModelSection with_automodel_routing(ModelSection section, PluginRegistry& plugins) {
  if (section.automodel.is_null()) return section;
  const Node own =
      decoder::text_keys(has_map(section) ? section.config : checkpoint::read_config_json(file_of(section)));
  const auto type = key_of(section, own, "model_type");
  if (!type || type->kind() != Node::Kind::text) return section;
  const OfferedModel* family = plugins.model(type->as_text());
  if (family == nullptr) return section;
  for (const auto& [key, value] : family->make()->automodel_keys(type->as_text())) {
    if (key_of(section, own, key)) continue;
    if (const auto in_turn = key_of(section, own, "fake_balanced_gate"); in_turn && in_turn->as_boolean())
      continue;
    const bool loss = value.kind() == Node::Kind::text;
    const auto coefficient = key_of(section, own, "router_aux_loss_coef");
    if (loss && coefficient && !coefficient->is_null() && coefficient->as_real() == 0) continue;
    const auto at = section.automodel.mark();
    const std::string path = "model.config." + key, word = loss ? value.as_text() : value.written();
    section = with_key(std::move(section), key,
                       loss ? Node::text(word, at, path) : Node::real(value.as_real(), at, path));
    section.routing = key + " " + word;
  }
  return section;
}

// AutoModel's Qwen3.5 trains the heads that config.json has, unless the recipe says num_nextn_predict_layers:
// 0.
void warn_of_heads(const ModelSection& section, std::vector<std::string>& warnings) {
  if (section.automodel.is_null() || has_map(section)) return;
  if (!section.mtp_keys.is_null() && section.mtp_keys.find("num_nextn_predict_layers") != nullptr) return;
  const Node own = decoder::text_keys(checkpoint::read_config_json(file_of(section)));
  const auto heads = key_of(section, own, "mtp_num_hidden_layers");
  if (!heads || heads->is_null() || heads->as_integer() == 0) return;
  warnings.push_back(
      section.where +
      ": AutoModel trains the multi-token prediction heads of this model too (mtp_num_hidden_layers " +
      heads->written() +
      "), which are not built here: it trains on the next token alone, as with "
      "num_nextn_predict_layers: 0");
}

}  // namespace

ModelSection with_recipe_keys(ModelSection section, PluginRegistry& plugins,
                              std::vector<std::string>& warnings) {
  warn_of_heads(section, warnings);
  return with_automodel_routing(with_mtp_keys(std::move(section), plugins), plugins);
}

}  // namespace heddle
