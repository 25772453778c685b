// Schema of peft, with AutoModel's defaults and its messages about fields that exclude each other.
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
      .field("_target_", &Config::target, "Class of AutoModel. Its last part must be PeftConfig.",
             Check{"PeftConfig", check_target})
      .field("target_modules", &Config::target_modules,
             "Patterns of the paths of modules that get an adapter: a regular expression of the whole path, "
             "in which `*` matches any characters, dots too. Default if this field and the next two are "
             "unset: `*_proj`.",
             patterns)
      .field("exclude_modules", &Config::exclude_modules,
             "Patterns of module paths: every linear layer except these gets an adapter.", patterns)
      .field("match_all_linear", &Config::match_all_linear,
             "Add adapters to every linear layer, including the head.")
      .field("dim", &Config::dim, "Rank r of A [r, in] and B [out, r].", at_least<int64_t>(1))
      .field("alpha", &Config::alpha,
             "Numerator of the scale: an adapter's output is multiplied by alpha / dim.",
             at_least<int64_t>(1))
      .field("dropout", &Config::dropout, "Dropout probability of the adapters in training.",
             Range<double>{0, 1})
      .field("dropout_position", &Config::dropout_position,
             "Whether dropout applies to the adapter's input (pre) or output (post).", OneOf{{"pre", "post"}})
      .field("lora_A_init", &Config::a_init,
             "Initial values of A. `xavier`: normal with standard deviation sqrt(2 / (in + dim)). Any other "
             "word: uniform in +-1 / sqrt(in). B is initialized with zeros.")
      .field("lora_dtype", &Config::dtype, "Dtype of A and B. null: the dtype of the layer.")
      .field("use_dora", &Config::use_dora, "Train a magnitude for each row of W + BA (DoRA).")
      .field("use_triton", &Config::use_triton, "Ignored: selects a kernel in AutoModel.")
      .field("use_memory_efficient_lora", &Config::use_memory_efficient_lora,
             "Ignored: selects a kernel in AutoModel.")
      .field("moe_rank_scaling", &Config::moe_rank_scaling,
             "Use rank dim // (experts per token) for the adapters of experts.")
      .rule(exclusive);
}

}  // namespace lora
}  // namespace heddle
