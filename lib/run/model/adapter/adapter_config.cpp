// Reads adapter_config.json.
#include "lib/run/model/adapter/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/huggingface/hf_json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using AdapterJson = nlohmann::ordered_json;  // ordered: the first pattern that matches wins

constexpr const char* kMerge =
    "merge the adapter with PEFT: PeftModel.from_pretrained(BASE, ADAPTER).merge_and_unload()"
    ".save_pretrained(DIR)";

constexpr std::array kAdapterKeys = {
    AdapterKey{"alora_invocation_tokens", "an activated adapter applies to some tokens only"},
    AdapterKey{"alpha_pattern", ""},
    AdapterKey{"arrow_config", "heddle does not route tokens between adapters"},
    AdapterKey{"auto_mapping", ""},
    AdapterKey{"base_model_name_or_path", ""},
    AdapterKey{"bias", ""},
    AdapterKey{"corda_config", ""},
    AdapterKey{"ensure_weight_tying", "heddle does not tie adapters of two layers"},
    AdapterKey{"eva_config", ""},
    AdapterKey{"exclude_modules", ""},
    AdapterKey{"fan_in_fan_out", ""},  // PEFT decides by the class of the layer, heddle by the model's files
    AdapterKey{"inference_mode", ""},
    AdapterKey{"init_lora_weights", ""},
    AdapterKey{"kasa_config", "PEFT changes the base weights when it loads such an adapter"},
    AdapterKey{"layer_replication", "the adapter belongs to a base with repeated layers"},
    AdapterKey{"layers_pattern", ""},
    AdapterKey{"layers_to_transform", ""},
    AdapterKey{"loftq_config", ""},
    AdapterKey{"lora_alpha", ""},
    AdapterKey{"lora_bias", "heddle does not read a bias of B"},
    AdapterKey{"lora_dropout", ""},
    AdapterKey{"lora_ga_config", ""},
    AdapterKey{"megatron_config", "the adapter belongs to Megatron-LM layers"},
    AdapterKey{"megatron_core", ""},
    AdapterKey{"modules_to_save", "heddle reads A and B, not modules that were trained whole"},
    AdapterKey{"monteclora_config", "heddle does not sample adapters"},
    AdapterKey{"peft_type", ""},
    AdapterKey{"peft_version", ""},
    AdapterKey{"qalora_group_size", ""},
    AdapterKey{"r", ""},
    AdapterKey{"rank_pattern", ""},
    AdapterKey{"revision", ""},
    AdapterKey{"runtime_config", ""},
    AdapterKey{"target_modules", ""},
    AdapterKey{"target_parameters", ""},
    AdapterKey{"task_type", ""},
    AdapterKey{"trainable_token_indices", "heddle reads A and B, not rows of the embedding"},
    AdapterKey{"use_bdlora", "heddle does not read block-diagonal adapters"},
    AdapterKey{"use_dora", ""},
    AdapterKey{"use_qalora", "heddle does not pool the inputs of A"},
    AdapterKey{"use_rslora", ""},
    AdapterKey{"velora_config", ""},
};

bool is_set(const AdapterJson& value) {
  if (value.is_null() || value == false) return false;
  return !(value.is_array() || value.is_object()) || !value.empty();
}

// Reads the keys of one file; errors name file and key.
class AdapterReader {
 public:
  explicit AdapterReader(const fs::path& file)
      : file_(file.string()), json_(checkpoint::read_hf_json(file)) {}

  void check_keys() const {
    for (const auto& [key, value] : json_.items()) {
      const auto known = std::find_if(kAdapterKeys.begin(), kAdapterKeys.end(),
                                      [&key](const AdapterKey& one) { return one.name == key; });
      if (!is_set(value)) continue;
      if (known == kAdapterKeys.end())
        refuse(key, "PEFT 0.21 has no such key",
               "remove the key if it does not affect the model, or " + std::string(kMerge));
      if (!known->refusal.empty()) refuse(key, std::string(known->refusal));
    }
    if (const AdapterJson* type = find("peft_type"); type != nullptr && *type != "LORA")
      refuse("peft_type", "heddle reads LORA");
    check_word("bias", {"none"}, "heddle reads A and B, not trained biases");
    check_word("task_type", {"CAUSAL_LM"}, "heddle reads adapters of CAUSAL_LM");
    check_first_values();
  }

  std::string text(const char* key) const {
    const AdapterJson* value = find(key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
  }
  bool flag(const char* key) const {
    const AdapterJson* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) wrong(key, "true or false");
    return value->get<bool>();
  }
  double number(const char* key, bool is_rank) const {
    const AdapterJson* value = find(key);
    if (value == nullptr)
      throw Error(ErrorCode::input, file_, std::string("has no number ") + key, "save it again with peft");
    return number_in(key, *value, is_rank);
  }

  ModuleNames modules(const char* key) const {
    ModuleNames out;
    const AdapterJson* value = find(key);
    if (value == nullptr) return out;
    out.is_given = true;
    if (value->is_string())
      out.pattern.emplace(pattern(key, value->get<std::string>()));
    else
      for (const std::string& name : words(key)) out.names.insert(name);
    return out;
  }

  ModuleValues values(const char* key, bool is_rank) const {
    ModuleValues out;
    const AdapterJson* map = find(key);
    if (map == nullptr) return out;
    if (!map->is_object()) wrong(key, "a map of patterns to numbers");
    for (const auto& [expression, value] : map->items())
      out.patterns.emplace_back(pattern(key, "(.*\\.)?(" + expression + ")"), number_in(key, value, is_rank));
    return out;
  }

  std::set<int64_t> integers(const char* key) const {
    std::set<int64_t> out;
    const AdapterJson* value = find(key);
    if (value == nullptr) return out;
    for (const AdapterJson& item : value->is_array() ? *value : AdapterJson::array({*value})) {
      if (!item.is_number_integer()) wrong(key, "an integer or a list of integers");
      out.insert(item.get<int64_t>());
    }
    return out;
  }

  // The layer number is the first number after a name; layers_pattern names it.
  std::vector<text::Pattern> layer_lists() const {
    std::vector<text::Pattern> out;
    const AdapterJson* value = find("layers_pattern");
    std::vector<std::string> names;
    if (value != nullptr && value->is_string())
      names.push_back(value->get<std::string>());
    else if (value != nullptr)
      names = words("layers_pattern");
    for (const std::string& name : names)
      out.push_back(pattern("layers_pattern", "(?:^|.*?\\.)" + name + "\\.([0-9]{1,18})\\..*"));
    if (names.empty()) out.emplace_back(".*?\\.[^.]*\\.([0-9]{1,18})\\..*");
    return out;
  }

  bool is_all_linear() const { return text::lower(text("target_modules")) == "all-linear"; }

 private:
  const AdapterJson* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why,
                           const std::string& hint = kMerge) const {
    throw Error(ErrorCode::not_built, file_,
                key + " is " + text::excerpt(json_.at(key).dump()) + ", but " + why, hint);
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& expected) const {
    throw Error(ErrorCode::input, file_,
                key + " is " + text::excerpt(json_.at(key).dump()) + "; expected " + expected,
                "save the adapter again with peft");
  }

  void check_word(const char* key, std::initializer_list<const char*> read, const std::string& why) const {
    const AdapterJson* value = find(key);
    if (value != nullptr && std::find(read.begin(), read.end(), *value) == read.end()) refuse(key, why);
  }

  // Other initializations make PEFT change the base weight to W - B A when it loads such an adapter.
  void check_first_values() const {
    constexpr const char* kKey = "init_lora_weights";
    const AdapterJson* value = find(kKey);
    if (value == nullptr || value->is_boolean()) return;
    static const std::set<std::string> kKeepTheBase = {"gaussian", "eva", "orthogonal", "mica"};
    if (!kKeepTheBase.contains(text::lower(text(kKey))))
      refuse(kKey, "PEFT changes the base weights when it loads such an adapter",
             "save the adapter for the unchanged base with PEFT's save_pretrained(DIR, "
             "path_initial_model_for_weight_conversion=INITIAL), or " +
                 std::string(kMerge));
  }

  double number_in(const std::string& key, const AdapterJson& value, bool is_rank) const {
    const bool fits = is_rank ? value.is_number_integer() && value.get<int64_t>() > 0 : value.is_number();
    if (!fits) wrong(key, is_rank ? "integers of 1 or more" : "numbers");
    return value.get<double>();
  }

  std::vector<std::string> words(const char* key) const {
    const AdapterJson* value = find(key);
    std::vector<std::string> out;
    if (value->is_array())
      for (const AdapterJson& item : *value)
        if (item.is_string()) out.push_back(item.get<std::string>());
    if (!value->is_array() || out.size() != value->size()) wrong(key, "a text or a list of texts");
    return out;
  }

  // PEFT's patterns are Python's; syntax that ECMAScript lacks is an error.
  text::Pattern pattern(const std::string& key, const std::string& expression) const {
    const std::string hint = "list the names of the modules, or " + std::string(kMerge);
    for (const char* end : {"\\A", "\\Z"})
      if (expression.find(end) != expression.npos)
        refuse(key, std::string("heddle does not read ") + end + " in a regular expression", hint);
    try {
      return text::Pattern(expression, file_);
    } catch (const Error& error) {
      refuse(key, "heddle cannot read its regular expression: " + error.message(), hint);
    }
  }

  std::string file_;
  AdapterJson json_;
};

// AutoModel saves its own fields in addition to PEFT's, and its target_modules do not match its tensor names.
void read_automodel_config(const fs::path& directory, AdapterConfig& out) {
  const fs::path file = directory / "automodel_peft_config.json";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return;
  out.is_of_automodel = true;
  out.scales_rank_of_experts = AdapterReader(file).flag("moe_rank_scaling");
}

}  // namespace

std::span<const AdapterKey> adapter_keys() {
  return kAdapterKeys;
}

bool ModuleNames::matches(std::string_view path) const {
  if (pattern) return !pattern->match(std::string(path)).empty();
  while (!names.contains(path)) {
    const size_t dot = path.find('.');
    if (dot == path.npos) return false;
    path.remove_prefix(dot + 1);
  }
  return true;
}

double ModuleValues::at(const std::string& path, double otherwise) const {
  for (const auto& [pattern, value] : patterns)
    if (!pattern.match(path).empty()) return value;
  return otherwise;
}

bool AdapterConfig::adapts(const std::string& path) const {
  if (is_of_automodel || parameters.matches(path)) return true;
  if (excluded.is_given && excluded.matches(path)) return false;
  if (!targets.is_given) return !parameters.is_given;
  if (!targets.matches(path)) return false;
  if (layers.empty()) return true;
  for (const text::Pattern& list : layer_lists)
    if (const std::vector<std::string> groups = list.match(path); !groups.empty())
      return layers.contains(std::stoll(groups.back()));
  return false;
}

int64_t AdapterConfig::rank_at(const std::string& path) const {
  return static_cast<int64_t>(ranks.at(path, rank));
}

double AdapterConfig::scale_at(const std::string& path, int64_t rank) const {
  const auto r = static_cast<double>(rank);
  return alphas.at(path, alpha) / (by_root ? std::sqrt(r) : r);
}

AdapterConfig read_adapter_config(const fs::path& directory) {
  const AdapterReader in(directory / kAdapterConfig);
  in.check_keys();
  AdapterConfig out;
  out.base = in.text("base_model_name_or_path");
  out.revision = in.text("revision");
  out.alpha = in.number("lora_alpha", false);
  out.rank = in.number("r", true);
  out.alphas = in.values("alpha_pattern", false);
  out.ranks = in.values("rank_pattern", true);
  out.by_root = in.flag("use_rslora");
  out.by_rows = in.flag("use_dora");
  out.targets = in.modules("target_modules");
  // Every layer but the output layer, which is the only one without a dot in its path.
  if (in.is_all_linear()) out.targets.pattern.emplace(".*\\..*");
  out.excluded = in.modules("exclude_modules");
  out.layers = in.integers("layers_to_transform");
  out.layer_lists = in.layer_lists();
  out.parameters = in.modules("target_parameters");
  read_automodel_config(directory, out);
  return out;
}

}  // namespace heddle
