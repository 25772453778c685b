// The section qat: NeMo AutoModel's, with its QATConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/sdk.h"

namespace heddle::qat {

// AutoModel's QATConfig: the arguments of torchao's quantizers.
struct Quantizer {
  std::string type = "int8_dynact_int4weight";
  int64_t groupsize = 256;
  std::optional<bool> padding_allowed;   // int8_dynact_int4weight only
  std::optional<int64_t> inner_k_tiles;  // int4_weight_only only
  DTypeWord precision{"bfloat16"}, scales_precision{"bfloat16"};

  bool rounds_inputs() const { return type == "int8_dynact_int4weight"; }
  // Number of which the input size of a layer must be a multiple, in addition to groupsize.
  int64_t tile() const { return rounds_inputs() ? 1 : 16 * inner_k_tiles.value_or(8); }
};

struct Config {
  std::optional<bool> enabled;  // empty: false
  std::optional<int64_t> after = 0;
  std::optional<Quantizer> qat_config, quantizer;
  bool on() const { return enabled.value_or(false); }
  // Returns the quantizer to use. null: none is given.
  const Quantizer* chosen() const { return qat_config ? &*qat_config : quantizer ? &*quantizer : nullptr; }
};

ConfigSchema<Config> schema();

}  // namespace heddle::qat

namespace heddle {

template <>
struct FieldType<qat::Quantizer> {
  static std::string type_name() { return "map"; }
  static qat::Quantizer read(const Node& value);
  static Node write(const qat::Quantizer& value);
};

}  // namespace heddle
