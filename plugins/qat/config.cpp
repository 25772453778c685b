// The fields of qat and of its quantizer, with the limits of torchao's quantizers.
#include "config.h"

#include <algorithm>
#include <array>

namespace heddle::qat {
namespace {

template <size_t N>
bool is_one_of(int64_t value, const std::array<int64_t, N>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

std::string complaint_of(const Quantizer& given) {
  const std::string type = "quantizer_type: " + given.type;
  const std::string& scales = given.scales_precision.word;
  if (given.rounds_inputs()) {
    if (given.inner_k_tiles) return "inner_k_tiles is no argument of " + type;
    if (scales != "bfloat16" && scales != "float32")
      return "scales_precision of " + type + " is bfloat16 or float32";
    return "";
  }
  if (given.padding_allowed) return "padding_allowed is no argument of " + type;
  if (!is_one_of<4>(given.groupsize, {32, 64, 128, 256}))
    return "groupsize of " + type + " is 32, 64, 128 or 256";
  if (given.inner_k_tiles && !is_one_of<3>(*given.inner_k_tiles, {2, 4, 8}))
    return "inner_k_tiles is 2, 4 or 8";
  return scales == "bfloat16" ? "" : "scales_precision of " + type + " is bfloat16";
}

ConfigSchema<Quantizer> quantizer_schema() {
  return ConfigSchema<Quantizer>()
      .field("quantizer_type", &Quantizer::type, "What is rounded.",
             OneOf{{"int8_dynact_int4weight", "int4_weight_only"}})
      .field("groupsize", &Quantizer::groupsize, "Numbers of a row of a weight with one scale.",
             at_least<int64_t>(2))
      .field("padding_allowed", &Quantizer::padding_allowed,
             "Layers whose inputs groupsize does not divide are refused; false: they stay as they are.")
      .field("inner_k_tiles", &Quantizer::inner_k_tiles,
             "The inputs of each layer must be a multiple of 16 times this.")
      .field("precision", &Quantizer::precision,
             "The dtype of AutoModel's new layers; no effect: weights keep theirs.")
      .field("scales_precision", &Quantizer::scales_precision,
             "The dtype to which the scales of weights are rounded.")
      .rule(complaint_of);
}

std::string complaint_of(const Config& config) {
  if (config.qat_config && config.quantizer)
    return "quantizer is the older name of qat_config: give one of the two";
  if (config.on() && config.chosen() == nullptr)
    return "enabled: true needs a qat_config, such as {quantizer_type: int8_dynact_int4weight, groupsize: "
           "256}; without it AutoModel trains without fake quantization";
  return "";
}

}  // namespace

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("enabled", &Config::enabled, "False or null: the section changes nothing.")
      .field("fake_quant_after_n_steps", &Config::after,
             "Steps of the run before anything is rounded; null: 0.", at_least<int64_t>(0))
      .field("qat_config", &Config::qat_config,
             "Fields of QATConfig: quantizer_type, groupsize, padding_allowed, inner_k_tiles, precision, "
             "scales_precision.")
      .field("quantizer", &Config::quantizer, "The older name of qat_config.")
      .rule([](const Config& config) { return complaint_of(config); });
}

}  // namespace heddle::qat

namespace heddle {

using qat::Quantizer;

Quantizer FieldType<Quantizer>::read(const Node& value) {
  return qat::quantizer_schema().read(config::without_target(value, "QATConfig"));
}

Node FieldType<Quantizer>::write(const Quantizer& value) {
  return qat::quantizer_schema().write(value);
}

}  // namespace heddle
