// The fields of peft, with AutoModel's defaults and its words for what excludes each other.
#include "config.h"

#include <array>

#include "heddle/config/common_fields.h"
#include "matcher.h"

namespace heddle {

lora::Patterns FieldType<lora::Patterns>::read(const Node& value) {
  if (value.is_null()) return {};
  if (!value.is_list()) return {{value.as_text()}};
  return {FieldType<std::vector<std::string>>::read(value)};
}

Node FieldType<lora::Patterns>::write(const lora::Patterns& value) {
  return FieldType<std::vector<std::string>>::write(value.words);
}

namespace lora {
namespace {

void check_target(const Node& value) {
  static const std::array<std::string, 1> known = {"PeftConfig"};
  if (!value.is_null()) config::component_of(value, known);
}

void check_patterns(const Node& value) {
  if (value.is_null()) return;
  if (!value.is_list()) return (void)Pattern(value.as_text(), value.where());
  for (const Node& item : value.items()) (void)Pattern(item.as_text(), item.where());
}

std::string exclusive(const Config& config) {
  const bool targets = !config.target_modules.empty(), excludes = !config.exclude_modules.empty();
  if (targets && excludes)
    return "target_modules and exclude_modules are mutually exclusive. Please provide only one of them.";
  if (config.match_all_linear && (targets || excludes))
    return "Expected target_modules/exclude_modules to be empty when match_all_linear is true. Please "
           "provide only one of them.";
  return "";
}

}  // namespace

ConfigSchema<Config> schema() {
  const Check patterns{"", check_patterns};
  return ConfigSchema<Config>()
      .field("_target_", &Config::target, "AutoModel's class: its last word is PeftConfig.",
             Check{"PeftConfig", check_target})
      .field("target_modules", &Config::target_modules,
             "Patterns of the paths of modules that get an adapter: `*` is any characters, dots too; the "
             "rest is a regular expression of the whole path. Nothing in this field and the next two: "
             "`*_proj`.",
             patterns)
      .field("exclude_modules", &Config::exclude_modules,
             "Patterns: every linear layer but these gets an adapter.", patterns)
      .field("match_all_linear", &Config::match_all_linear, "Every linear layer, the head too.")
      .field("dim", &Config::dim, "The rank r of A [r, in] and B [out, r].", at_least<int64_t>(1))
      .field("alpha", &Config::alpha, "An adapter's output is multiplied by alpha / dim.",
             at_least<int64_t>(1))
      .field("dropout", &Config::dropout, "The share of numbers that are set to zero while training.",
             Range<double>{0, 1})
      .field("dropout_position", &Config::dropout_position,
             "Where: in the adapter's input (pre) or in its output (post).", OneOf{{"pre", "post"}})
      .field("lora_A_init", &Config::a_init,
             "First values of A: `xavier` is normal with the deviation sqrt(2 / (in + dim)); any other word "
             "uniform within 1 / sqrt(in). B begins with zeros.")
      .field("lora_dtype", &Config::dtype, "The dtype of A and B; null: the layer's.")
      .field("use_dora", &Config::use_dora, "A trained magnitude for each row of W + BA.")
      .field("use_triton", &Config::use_triton, "Chooses a kernel in AutoModel; no effect.")
      .field("use_memory_efficient_lora", &Config::use_memory_efficient_lora,
             "Chooses a kernel in AutoModel; no effect.")
      .field("moe_rank_scaling", &Config::moe_rank_scaling,
             "Adapters of experts get the rank dim // experts a token; no other adapter changes.")
      .rule(exclusive);
}

}  // namespace lora
}  // namespace heddle
