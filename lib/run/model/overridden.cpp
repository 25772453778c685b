// Reads models with overridden keys, and compares pretrained models with and without them.
#include "lib/run/model/overridden.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "heddle/base/error.h"
#include "heddle/decoder/text_family.h"
#include "heddle/engine/engine.h"
#include "heddle/model/config_keys.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "lib/checkpoint/quantized/quantization.h"
#include "lib/data/hub_directory.h"
#include "lib/run/model/find_model.h"

namespace heddle {
namespace {

using Spec = std::shared_ptr<const ModelSpec>;
using Shapes = std::map<std::string, std::vector<int64_t>>;

constexpr const char* kText = "text_config";  // section of the text model in a multimodal model's keys

// Returns `keys` with the entries of `instead` replaced, except `but_for`. For a multimodal model, the
// entries are keys of the text model.
Node merged(const Node& keys, const Node& instead, const std::string& but_for = "") {
  if (const Node* text = keys.find(kText);
      text != nullptr && text->is_map() && instead.find(kText) == nullptr)
    return keys.without(kText).with(kText, merged(*text, instead, but_for));
  std::vector<Node::Entry> entries;
  for (const Node::Entry& entry : keys.entries())
    if (entry.first == but_for || instead.find(entry.first) == nullptr) entries.push_back(entry);
  for (const Node::Entry& entry : instead.entries())
    if (entry.first != but_for) entries.push_back(entry);
  return Node::map(std::move(entries), keys.mark(), keys.path());
}

Spec model_of(const Node& keys, PluginRegistry& plugins) {
  return engine::read_model(keys, plugins, UnknownKeys::passed_over);
}

Shapes shapes_of(const ModelSpec& spec) {
  Shapes out;
  for (const auto& unit : spec.make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat)))
    for (const ParameterSlot& slot : unit->parameters()) out[slot.name] = slot.tensor->sizes().vec();
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out;
  for (const int64_t size : shape) out += (out.empty() ? "" : ", ") + std::to_string(size);
  return "[" + out + "]";
}

// Describes the first parameter that differs; empty: none. Tensors that the changed model ignores in the
// files may be absent: multi-token prediction heads with num_nextn_predict_layers 0.
std::string changed_parameter(const ModelSpec& plain, const ModelSpec& with_keys) {
  const Shapes own = shapes_of(plain), changed = shapes_of(with_keys);
  for (const auto& [name, shape] : own) {
    const auto found = changed.find(name);
    if (found == changed.end()) {
      if (with_keys.passes_over(name)) continue;
      return name + " would be missing";
    }
    if (found->second != shape)
      return name + " would have the shape " + shape_text(found->second) + ", but has the shape " +
             shape_text(shape);
  }
  for (const auto& [name, shape] : changed)
    if (!own.contains(name)) return name + " would be added";
  return "";
}

// Returns why a key has no effect; empty: it has an effect.
std::string why_idle(const Node& own, const Node& keys, const std::string& key, const ModelSpec& spec,
                     PluginRegistry& plugins) {
  const auto idle = spec.idle_keys();
  if (const auto found = idle.find(key); found != idle.end()) return found->second;
  try {
    if (model_of(merged(own, keys, key), plugins)->config_json("float32") != spec.config_json("float32"))
      return "";
  } catch (const Error&) {
    return "";  // the other keys cannot be read without it
  }
  return "the model is the same without it; the key is unknown, overridden by another key, or has its "
         "current value";
}

// Returns the keys without which the model is the same, and adds a warning for each.
std::set<std::string> warn_of_no_effect(const Node& own, const Node& keys, const ModelSpec& spec,
                                        PluginRegistry& plugins, std::vector<std::string>& warnings) {
  std::set<std::string> out;
  for (const auto& [key, value] : keys.entries()) {
    const std::string why = why_idle(own, keys, key, spec, plugins);
    if (why.empty()) continue;
    warnings.push_back(value.where() + " has no effect: " + why);
    out.insert(key);
  }
  return out;
}

bool has_map(const ModelSection& section) {
  return section.source == ModelSection::Source::config && section.config.is_map();
}

// Returns the config.json of the model that a section names.
std::filesystem::path file_of(const ModelSection& section) {
  return section.source == ModelSection::Source::config ? config_file(section.config.as_text())
                                                        : find_model(section.directory).notes / "config.json";
}

// Returns the model that the section describes, without weights.
std::shared_ptr<const ModelSpec> described(const ModelSection& section, PluginRegistry& plugins) {
  std::vector<std::string> ignored;
  if (has_map(section)) return read_map(section, plugins, ignored);
  return section.overrides.empty() ? engine::read_model(file_of(section), plugins)
                                   : read_with_keys(file_of(section), section.overrides.keys, plugins);
}

// Returns the section with a key added to its config or replaced there.
ModelSection with_key(ModelSection section, const std::string& key, const Node& value) {
  const bool inside = has_map(section);
  Node keys = inside ? section.config : section.overrides.keys;
  if (keys.is_null()) keys = Node::map({}, value.mark(), "model.config");
  (inside ? section.config : section.overrides.keys) = keys.without(key).with(key, value);
  return section;
}

// Adds the keys to the config, which makes them a part of the model's signature.
ModelSection with_mtp_keys(ModelSection section, PluginRegistry& plugins) {
  if (section.mtp_keys.is_null()) return section;
  const auto spec = described(section, plugins);
  if (!spec->signature().contains("num_nextn_predict_layers")) {
    if (section.mtp_heads.empty()) return section;
    throw Error(ErrorCode::not_built, section.mtp_heads,
                "the family " + spec->facts().model_type + " has no multi-token prediction heads in heddle",
                "remove num_nextn_predict_layers to train on the next token only");
  }
  for (const auto& [key, value] : section.mtp_keys.entries())
    section = with_key(std::move(section), key, value);
  return section;
}

// Returns a key of the model: the recipe's, or else that of config.json.
std::optional<Node> key_of(const ModelSection& section, const Node& own, const std::string& key) {
  for (const Node* keys : {&section.overrides.keys, &section.backend, &own})
    if (const Node* found = keys->is_null() ? nullptr : keys->find(key); found != nullptr) return *found;
  return std::nullopt;
}

// Adds the defaults of AutoModel's own module of the family if the section names AutoModel's class. Adds
// nothing if a key overrides them, experts are assigned round-robin, or the coefficient is 0.
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

// Warns that AutoModel's Qwen3.5 trains the heads of config.json unless the recipe has
// num_nextn_predict_layers: 0.
void warn_of_heads(const ModelSection& section, std::vector<std::string>& warnings) {
  if (section.automodel.is_null() || has_map(section)) return;
  if (!section.mtp_keys.is_null() && section.mtp_keys.find("num_nextn_predict_layers") != nullptr) return;
  const Node own = decoder::text_keys(checkpoint::read_config_json(file_of(section)));
  const auto heads = key_of(section, own, "mtp_num_hidden_layers");
  if (!heads || heads->is_null() || heads->as_integer() == 0) return;
  warnings.push_back(
      section.where +
      ": AutoModel also trains the multi-token prediction heads of this model (mtp_num_hidden_layers " +
      heads->written() +
      "), which heddle does not support: the model trains on the next token only, as with "
      "num_nextn_predict_layers: 0");
}

}  // namespace

// Removes the keys of quantization, because weights are dequantized when they are read.
Node dequantized_keys(const std::filesystem::path& config_json) {
  return checkpoint::without_quantization(checkpoint::read_config_json(config_json));
}

Overridden read_overridden(const Node& own, const std::filesystem::path& config_json,
                           const ConfigOverrides& overrides, PluginRegistry& plugins,
                           std::vector<std::string>& warnings) {
  const Node& keys = overrides.keys;
  if (const Node* type = keys.find("model_type"))
    model::refuse(*type, "the type of a pretrained model is that of its config.json", "remove model_type");
  const Spec spec = model_of(merged(own, keys), plugins);
  Spec plain;
  try {
    plain = model_of(own, plugins);
  } catch (const Error& error) {
    if (overrides.exported) return {spec, {}};  // the weights show whether they fit
    throw Error(ErrorCode::config, keys.where(),
                config_json.string() +
                    " cannot be read without these keys, and neither could the model that the run "
                    "exports: " +
                    error.where() + ": " + error.message(),
                "set model.export_config: true to export the keys too");
  }
  if (const std::string changed = changed_parameter(*plain, *spec); !changed.empty())
    throw Error(
        ErrorCode::config, keys.where(),
        "the keys change the parameters of " + config_json.parent_path().string() + ": " + changed,
        "remove the keys that change shapes. A model of other shapes starts from random weights: use config "
        "without pretrained_model_name_or_path");
  return {spec, warn_of_no_effect(own, keys, *spec, plugins, warnings)};
}

Spec read_with_keys(const std::filesystem::path& config_json, const Node& keys, PluginRegistry& plugins) {
  return model_of(merged(dequantized_keys(config_json), keys), plugins);
}

void add_to_config(std::string& config_json, const Node& keys) {
  auto config = checkpoint::parse_hf_json(config_json, "config.json");
  auto& place = config.contains(kText) && keys.find(kText) == nullptr ? config[kText] : config;
  for (const auto& [key, value] : keys.entries()) place[key] = checkpoint::to_hf_json(value);
  config_json = checkpoint::write_hf_json(config) + "\n";
}

std::filesystem::path config_file(const std::filesystem::path& path) {
  const std::filesystem::path place = hub_directory(path, HubKind::model);
  std::error_code ignored;
  if (std::filesystem::is_directory(place, ignored)) return find_model(place).notes / "config.json";
  if (!std::filesystem::exists(place, ignored))
    if (const std::string hint = hub_directory_hint(path, HubKind::model); !hint.empty())
      throw Error(ErrorCode::input, path.string(), "does not exist", hint);
  return place;
}

std::shared_ptr<const ModelSpec> read_map(const ModelSection& section, PluginRegistry& plugins,
                                          std::vector<std::string>& warnings) {
  if (section.backend.is_null()) return engine::read_model(section.config, plugins);
  Node keys = section.config;
  for (const auto& [key, value] : section.backend.entries())
    if (keys.find(key) == nullptr) keys = keys.with(key, value);
  const auto plain = engine::read_model(section.config, plugins);
  const auto spec = engine::read_model(keys, plugins, UnknownKeys::passed_over);
  if (spec->signature() != plain->signature() ||
      spec->config_json("float32") != plain->config_json("float32"))
    return engine::read_model(keys, plugins);
  for (const auto& [key, value] : section.backend.entries())
    warnings.push_back(value.where() + " has no effect: the model has no router");
  return plain;
}

ModelSection with_recipe_keys(ModelSection section, PluginRegistry& plugins,
                              std::vector<std::string>& warnings) {
  warn_of_heads(section, warnings);
  return with_automodel_routing(with_mtp_keys(std::move(section), plugins), plugins);
}

}  // namespace heddle
