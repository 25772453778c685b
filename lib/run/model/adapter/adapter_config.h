// adapter_config.json: the keys of LoraConfig in PEFT 0.21, and what a model reads from them.
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

// Names of modules as PEFT matches them: one regular expression of whole paths, or names of which a path is
// one or ends with one after a dot.
struct ModuleNames {
  std::optional<text::Pattern> pattern;
  std::set<std::string, std::less<>> names;
  bool is_given = false;
  bool matches(std::string_view path) const;
};

// Values of single modules. The first pattern that matches the end of a path counts.
struct ModuleValues {
  std::vector<std::pair<text::Pattern, double>> patterns;
  double at(const std::string& path, double otherwise) const;
};

// The settings of an adapter in adapter_config.json.
struct AdapterConfig {
  std::string base, revision;    // base_model_name_or_path and its revision on the hub; empty: none
  double alpha = 8, rank = 8;    // lora_alpha and r
  ModuleValues alphas, ranks;    // alpha_pattern and rank_pattern
  bool by_root = false;          // use_rslora: alpha / sqrt(r) in place of alpha / r
  bool by_rows = false;          // use_dora: rows of the sum have trained lengths
  bool is_of_automodel = false;  // its file beside this one: the tensors say which layers have an adapter
  bool scales_rank_of_experts = false;     // moe_rank_scaling of that file: r is not the rank of experts
  ModuleNames targets, excluded;           // target_modules, exclude_modules
  std::set<int64_t> layers;                // layers_to_transform; empty: all
  std::vector<text::Pattern> layer_lists;  // layers_pattern: the path up to the layer's number
  ModuleNames parameters;                  // target_parameters

  // Whether PEFT gives this module, or this parameter of experts, an adapter.
  bool adapts(const std::string& path) const;
  int64_t rank_at(const std::string& path) const;
  // The factor of B A.
  double scale_at(const std::string& path, int64_t rank) const;
};

// A key of LoraConfig. Empty `refusal`: the key is read, or changes nothing whatever its value. Else why a
// value other than null, false and an empty list or map is refused.
struct AdapterKey {
  std::string_view name, refusal;
};
std::span<const AdapterKey> adapter_keys();

// Throws Error{input} at the file for what is no adapter of LoRA, and Error{not_built}, which names the key,
// for a value that heddle does not read and for a key that PEFT 0.21 does not have.
AdapterConfig read_adapter_config(const std::filesystem::path& directory);

}  // namespace heddle
