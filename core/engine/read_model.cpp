// From model_type to the plugin, and from the plugin to the model.
#include "heddle/engine/engine.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/config_keys.h"
#include "lib/checkpoint/huggingface/read_config.h"
#include "lib/checkpoint/quantized/quantization.h"

namespace heddle::engine {
namespace {

std::string only(std::string_view type, bool (*keeps)(char)) {
  std::string out;
  for (const char character : text::lower(type))
    if (keeps(character)) out += character;
  return out;
}

bool is_letter(char character) {
  return character >= 'a' && character <= 'z';
}
bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

// Returns the nearest model_type, or "". A name is not corrected into one that differs in its version or by a
// suffix (olmo, olmo2; granite, granitemoe): that is another family. One letter, or other separators, is a
// slip.
std::string nearest_type(const std::string& type, const std::vector<std::string>& known) {
  const std::string near = text::nearest(type, known);
  const auto letters_and_digits = [](char each) { return is_letter(each) || is_digit(each); };
  if (only(type, letters_and_digits) == only(near, letters_and_digits)) return near;
  const std::string letters = only(type, is_letter), others = only(near, is_letter);
  const size_t difference = std::max(letters.size(), others.size()) - std::min(letters.size(), others.size());
  const bool has_suffix = difference > 1 && (letters.starts_with(others) || others.starts_with(letters));
  const bool is_short = letters.size() < 4;
  return has_suffix || is_short || only(type, is_digit) != only(near, is_digit) ? "" : near;
}

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
  const std::string near = nearest_type(name, known);
  model::refuse(*type,
                "model_type " + type->written() + " is not built; available: " + list_of_models(known) +
                    " (searched " + (searched.empty() ? "no directory" : text::join(searched)) + ")",
                (near.empty() ? "" : "did you mean " + near + "? Else ") +
                    "name the directory of its plugin under 'plugins:' or in HEDDLE_PLUGIN_PATH");
}

// Turns a configuration error of a config.json into an input error.
Error of_file(const Error& error) {
  if (error.code() != ErrorCode::config) return error;
  return {ErrorCode::input, error.where(), error.message(), error.hint()};
}

[[noreturn]] void refuse_unreadable(const Node& keys, const std::string& type, const std::string& why) {
  model::refuse(keys, "a checkpoint of this model could not be read again: " + why,
                "change these keys; it is a fault of the plugin that offers the model_type '" + type + "'");
}

// The first key of the signature that differs, in words; empty: none.
std::string difference(const std::map<std::string, std::string>& given,
                       const std::map<std::string, std::string>& again) {
  const auto value = [](const std::map<std::string, std::string>& of, const std::string& key) {
    const auto found = of.find(key);
    return found == of.end() ? std::string("absent") : "'" + found->second + "'";
  };
  for (const auto* one : {&given, &again})
    for (const auto& [key, ignored] : *one)
      if (value(given, key) != value(again, key))
        return key + " is " + value(given, key) + " in this model and " + value(again, key) +
               " in what its config.json describes";
  return "";
}

// Refuses a model whose exported keys could not be read again.
void check_reads_back(const Node& keys, const ModelSpec& spec, const IModelFamily& family) {
  const ModelFacts facts = spec.facts();
  const std::string dtype = facts.dtype.empty() ? "float32" : facts.dtype;
  const std::string json = spec.config_json(dtype);
  std::unique_ptr<ModelSpec> again;
  try {
    again = family.read(checkpoint::parse_config_json(json, "config.json"), UnknownKeys::passed_over);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::config && error.code() != ErrorCode::input) throw;
    refuse_unreadable(keys, facts.model_type, error.where() + ": " + error.message());
  }
  std::string why = difference(spec.signature(), again->signature());
  if (why.empty() && again->facts().vocabulary != facts.vocabulary) why = "its vocabulary differs";
  if (why.empty() && again->config_json(dtype) != json)
    why = "its config.json, read and written again, differs";
  if (!why.empty()) refuse_unreadable(keys, facts.model_type, why);
}

}  // namespace

std::shared_ptr<const ModelSpec> read_model(const Node& keys, PluginRegistry& plugins, UnknownKeys unknown) {
  const std::unique_ptr<IModelFamily> family = family_of(keys, plugins).make();
  std::shared_ptr<const ModelSpec> spec = family->read(keys, unknown);
  check_reads_back(keys, *spec, *family);
  return spec;
}

std::shared_ptr<const ModelSpec> read_model(const std::filesystem::path& config_json,
                                            PluginRegistry& plugins) {
  const Node keys = checkpoint::read_config_json(config_json);
  Errors errors;
  try {
    return read_model(checkpoint::without_quantization(keys), plugins, UnknownKeys::passed_over);
  } catch (const ErrorList& list) {
    for (const Error& error : list.all()) errors.add(of_file(error));
  } catch (const Error& error) {
    errors.add(of_file(error));
  }
  errors.raise();
  return nullptr;  // not reached
}

}  // namespace heddle::engine
