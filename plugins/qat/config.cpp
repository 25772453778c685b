// Schema of qat and of its quantizer, with the limits of torchao's quantizers.
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
    if (given.inner_k_tiles) return "inner_k_tiles is not supported by " + type;
    if (scales != "bfloat16" && scales != "float32")
      return "scales_precision of " + type + " must be bfloat16 or float32";
    return "";
  }
  if (given.padding_allowed) return "padding_allowed is not supported by " + type;
  if (!is_one_of<4>(given.groupsize, {32, 64, 128, 256}))
    return "groupsize of " + type + " must be 32, 64, 128 or 256";
  if (given.inner_k_tiles && !is_one_of<3>(*given.inner_k_tiles, {2, 4, 8}))
    return "inner_k_tiles must be 2, 4 or 8";
  return scales == "bfloat16" ? "" : "scales_precision of " + type + " must be bfloat16";
}

ConfigSchema<Quantizer> quantizer_schema() {
  return ConfigSchema<Quantizer>()
      .field("quantizer_type", &Quantizer::type,
             "Tensors to quantize: weights in int4 and inputs in int8, or weights in int4 only.",
             OneOf{{"int8_dynact_int4weight", "int4_weight_only"}})
      .field("groupsize", &Quantizer::groupsize, "Number of elements of a weight's row that share a scale.",
             at_least<int64_t>(2))
      .field("padding_allowed", &Quantizer::padding_allowed,
             "Refuse layers whose input size is not a multiple of groupsize. false: such layers are not "
             "quantized.")
      .field("inner_k_tiles", &Quantizer::inner_k_tiles,
             "The input size of each layer must be a multiple of 16 * inner_k_tiles.")
      .field("precision", &Quantizer::precision,
             "Ignored: weights keep their dtype. In AutoModel it sets the dtype of the replaced layers.")
      .field("scales_precision", &Quantizer::scales_precision, "Dtype of the scales of weights.")
      .rule(complaint_of);
}

std::string complaint_of(const Config& config) {
  if (config.qat_config && config.quantizer)
    return "quantizer is the older name of qat_config: set only one of the two";
  if (config.on() && config.chosen() == nullptr)
    return "enabled: true needs a qat_config, such as {quantizer_type: int8_dynact_int4weight, groupsize: "
           "256}; without it AutoModel trains without fake quantization";
  return "";
}

}  // namespace

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("enabled", &Config::enabled, "Enable QAT. false or null: the section has no effect.")
      .field("fake_quant_after_n_steps", &Config::after,
             "Number of steps without quantization at the start of the run. null: 0.", at_least<int64_t>(0))
      .field("qat_config", &Config::qat_config,
             "Settings of the quantizer: quantizer_type, groupsize, padding_allowed, inner_k_tiles, "
             "precision, scales_precision.")
      .field("quantizer", &Config::quantizer, "Older name of qat_config.")
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
