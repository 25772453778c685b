// The section peft: NeMo AutoModel's PeftConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/sdk.h"

namespace heddle::lora {

// Patterns of module paths: one word or a list of words. null: none.
struct Patterns {
  std::vector<std::string> words = {};
  bool empty() const { return words.empty(); }
};

struct Config {
  std::optional<std::string> target;
  Patterns target_modules, exclude_modules;
  bool match_all_linear = false;
  int64_t dim = 8, alpha = 32;
  double dropout = 0;
  std::string dropout_position = "post", a_init = "xavier";
  DTypeWord dtype;
  bool use_dora = false, use_triton = false, use_memory_efficient_lora = true, moe_rank_scaling = false;
};

ConfigSchema<Config> schema();

}  // namespace heddle::lora

namespace heddle {

template <>
struct FieldType<lora::Patterns> {
  static std::string type_name() { return "word or list of words"; }
  static lora::Patterns read(const Node& value);
  static Node write(const lora::Patterns& value);
};

}  // namespace heddle
