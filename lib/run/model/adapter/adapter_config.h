// adapter_config.json: the keys of LoraConfig in PEFT 0.21, and the values that heddle uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/pattern.h"

namespace heddle {

inline constexpr const char* kAdapterConfig = "adapter_config.json";

// Module names as PEFT matches them: one regular expression for whole paths, or a set of names, each of which
// equals a path or ends it after a dot.
struct ModuleNames {
  std::optional<text::Pattern> pattern;
  std::set<std::string, std::less<>> names;
  bool is_given = false;
  bool matches(std::string_view path) const;
};

// Values per module. The first pattern that matches the end of a path wins.
struct ModuleValues {
  std::vector<std::pair<text::Pattern, double>> patterns;
  double at(const std::string& path, double otherwise) const;
};

// The settings of an adapter in adapter_config.json.
struct AdapterConfig {
  std::string base, revision;    // base_model_name_or_path and its revision on the hub; empty: none
  double alpha = 8, rank = 8;    // lora_alpha and r
  ModuleValues alphas, ranks;    // alpha_pattern and rank_pattern
  bool by_root = false;          // use_rslora: alpha / sqrt(r) instead of alpha / r
  bool by_rows = false;          // use_dora: rows of the sum have trained lengths
  bool is_of_automodel = false;  // has AutoModel's file; the tensors determine which layers have an adapter
  bool scales_rank_of_experts = false;  // moe_rank_scaling of AutoModel's file: r is not the rank of experts
  ModuleNames targets, excluded;        // target_modules, exclude_modules
  std::set<int64_t> layers;             // layers_to_transform; empty: all
  std::vector<text::Pattern> layer_lists;  // layers_pattern: the path up to the layer's number
  ModuleNames parameters;                  // target_parameters

  // Whether PEFT adapts this module, or this parameter of experts.
  bool adapts(const std::string& path) const;
  int64_t rank_at(const std::string& path) const;
  // Returns the factor of B A.
  double scale_at(const std::string& path, int64_t rank) const;
};

// A key of LoraConfig. Empty `refusal`: heddle reads the key, or it has no effect. Else the reason why values
// other than null, false and an empty list or map are errors.
struct AdapterKey {
  std::string_view name, refusal;
};
std::span<const AdapterKey> adapter_keys();

// Throws Error{input} for an adapter that is not LoRA, and Error{not_built} for a value that heddle does not
// support and for a key that PEFT 0.21 does not have.
AdapterConfig read_adapter_config(const std::filesystem::path& directory);

}  // namespace heddle
