// Reads models with keys in place of their own; of a pretrained one with and without them, and compares.
#include "lib/run/model/overridden.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>

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

constexpr const char* kText = "text_config";  // of a model of text and images

// Entries of `keys`, those of `instead` in their place; but for one of these. Of a model of text and images
// they are keys of the text.
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

// The first parameter that differs, in words; empty: none. What the changed model passes over in files may be
// left out: multi-token prediction heads, with num_nextn_predict_layers 0.
std::string changed_parameter(const ModelSpec& plain, const ModelSpec& with_keys) {
  const Shapes own = shapes_of(plain), changed = shapes_of(with_keys);
  for (const auto& [name, shape] : own) {
    const auto found = changed.find(name);
    if (found == changed.end()) {
      if (with_keys.passes_over(name)) continue;
      return name + " would be missing";
    }
    if (found->second != shape)
      return name + " would have the shape " + shape_text(found->second) + ", and has " + shape_text(shape);
  }
  for (const auto& [name, shape] : changed)
    if (!own.contains(name)) return name + " would be added";
  return "";
}

// Why a key changes nothing; empty: it has an effect.
std::string why_idle(const Node& own, const Node& keys, const std::string& key, const ModelSpec& spec,
                     PluginRegistry& plugins) {
  const auto idle = spec.idle_keys();
  if (const auto found = idle.find(key); found != idle.end()) return found->second;
  try {
    if (model_of(merged(own, keys, key), plugins)->config_json("float32") != spec.config_json("float32"))
      return "";
  } catch (const Error&) {
    return "";  // the others are refused without it
  }
  return "the model is the same without it; no such key, a key that another one overrules, or the value that "
         "it has already";
}

// Keys without which the rest gives the same model.
std::set<std::string> warn_of_no_effect(const Node& own, const Node& keys, const ModelSpec& spec,
                                        PluginRegistry& plugins, std::vector<std::string>& warnings) {
  std::set<std::string> out;
  for (const auto& [key, value] : keys.entries()) {
    const std::string why = why_idle(own, keys, key, spec, plugins);
    if (why.empty()) continue;
    warnings.push_back(value.where() + " changes nothing: " + why);
    out.insert(key);
  }
  return out;
}

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

// What AutoModel's own modules add to the router of a model (nemo_automodel/components/models/TYPE/model.py,
// at 36044ad3): the loss of each layer with the coefficient of config.json, whatever output_router_logits
// says, or the update of the correction bias.
struct Routing {
  std::string_view model_type, key;
};
constexpr std::array<Routing, 11> kRouting = {{{"qwen3_moe", "router_aux_loss_type"},
                                               {"gpt_oss", "router_aux_loss_type"},
                                               {"qwen3_next", "router_aux_loss_type"},
                                               {"qwen3_5_moe", "router_aux_loss_type"},
                                               {"qwen3_5_moe_text", "router_aux_loss_type"},
                                               {"ernie4_5_moe", "router_aux_loss_type"},
                                               {"laguna", "router_aux_loss_type"},
                                               {"deepseek_v3", "gate_bias_update_factor"},
                                               {"kimi_k2", "gate_bias_update_factor"},
                                               {"deepseek_v32", "gate_bias_update_factor"},
                                               {"glm_moe_dsa", "gate_bias_update_factor"}}};
constexpr double kBiasUpdate = 0.001;

// A key of the model: the recipe's, else config.json's.
std::optional<Node> key_of(const ModelSection& section, const Node& own, const std::string& key) {
  for (const Node* keys : {&section.overrides.keys, &section.backend, &own})
    if (const Node* found = keys->is_null() ? nullptr : keys->find(key); found != nullptr) return *found;
  return std::nullopt;
}

// Not where a key says otherwise, experts are dealt in turn, or the coefficient is 0.
ModelSection with_automodel_routing(ModelSection section) {
  if (section.automodel.is_null()) return section;
  const Node own =
      decoder::text_keys(has_map(section) ? section.config : checkpoint::read_config_json(file_of(section)));
  const auto type = key_of(section, own, "model_type");
  if (!type || type->kind() != Node::Kind::text) return section;
  for (const Routing& one : kRouting) {
    const std::string key(one.key);
    if (type->as_text() != one.model_type || key_of(section, own, key)) continue;
    if (const auto in_turn = key_of(section, own, "fake_balanced_gate"); in_turn && in_turn->as_boolean())
      continue;
    const bool loss = one.key == "router_aux_loss_type";
    const auto coefficient = key_of(section, own, "router_aux_loss_coef");
    if (loss && coefficient && !coefficient->is_null() && coefficient->as_real() == 0) continue;
    const auto at = section.automodel.mark();
    const std::string path = "model.config." + key;
    const Node value = loss ? Node::text("layer", at, path) : Node::real(kBiasUpdate, at, path);
    section = with_key(std::move(section), key, value);
    section.routing = key + " " + (loss ? "layer" : value.written());
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

// Weights are dequantized when they are read.
Node dequantized_keys(const std::filesystem::path& config_json) {
  return checkpoint::without_quantization(checkpoint::read_config_json(config_json));
}

Overridden read_overridden(const Node& own, const std::filesystem::path& config_json,
                           const ConfigOverrides& overrides, PluginRegistry& plugins,
                           std::vector<std::string>& warnings) {
  const Node& keys = overrides.keys;
  if (const Node* type = keys.find("model_type"))
    model::refuse(*type, "the type of a pretrained model is that of its config.json", "leave model_type out");
  const Spec spec = model_of(merged(own, keys), plugins);
  Spec plain;
  try {
    plain = model_of(own, plugins);
  } catch (const Error& error) {
    if (overrides.exported) return {spec, {}};  // the weights tell whether they fit
    throw Error(ErrorCode::config, keys.where(),
                config_json.string() +
                    " cannot be read without these keys, and neither could what the run "
                    "exports: " +
                    error.where() + ": " + error.message(),
                "set model.export_config: true, which exports the keys too");
  }
  if (const std::string changed = changed_parameter(*plain, *spec); !changed.empty())
    throw Error(ErrorCode::config, keys.where(),
                "the keys change the parameters of " + config_json.parent_path().string() + ": " + changed,
                "leave out what changes shapes; a model of other shapes starts from random weights: config "
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

std::filesystem::path config_file(const std::filesystem::path& given) {
  const std::filesystem::path place = hub_directory(given, HubKind::model);
  std::error_code ignored;
  if (std::filesystem::is_directory(place, ignored)) return find_model(place).notes / "config.json";
  if (!std::filesystem::exists(place, ignored))
    if (const std::string hint = hub_directory_hint(given, HubKind::model); !hint.empty())
      throw Error(ErrorCode::input, given.string(), "is not there", hint);
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
    warnings.push_back(value.where() + " changes nothing: the model has no router that it could change");
  return plain;
}

ModelSection with_recipe_keys(ModelSection section, PluginRegistry& plugins,
                              std::vector<std::string>& warnings) {
  warn_of_heads(section, warnings);
  return with_automodel_routing(with_mtp_keys(std::move(section), plugins));
}

}  // namespace heddle
