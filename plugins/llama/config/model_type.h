// What a model type of the family has of its own. A new type is an entry of a group in types/.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "heddle/model/stored.h"
#include "model_config.h"

namespace heddle::llama {

// How files name the tensors of one expert, "<layer>.experts.N.<gate>.weight", and the router's.
struct ExpertFiles {
  std::string layer = "mlp";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string router = "gate";
  std::string correction = "gate.e_score_correction_bias";  // the bias that chooses experts
  // One tensor for all experts and each product, with the matrices transposed: gpt_oss.
  bool stacked = false;
};

struct ModelType {
  std::string name;          // model_type in config.json
  std::string architecture;  // transformers' class
  // transformers' defaults, where they differ from ModelConfig's.
  void (*set_defaults)(ModelConfig& config);
  // Reads the keys of the group, after those of all types. Throws Error{config} at the key: impossible, or
  // one that transformers would compute otherwise.
  void (*read)(const Node& keys, ModelConfig& config);
  // Adds what read() reads.
  void (*write)(const ModelConfig& config, nlohmann::ordered_json& out);
  ExpertFiles experts = {};
  bool partial_rotary = false;  // partial_rotary_factor acts
  // Where files have other tensors than the experts under another name; empty: this one they have.
  StoredParts (*other_files)(const ModelConfig& config, const std::string& parameter,
                             std::span<const int64_t> shape) = nullptr;
};

struct Key {
  FieldInfo info;
  std::string types = {};  // of the group that have it, between blanks; empty: all
};

// Types whose config.json have most keys in common: one table of the README, with the first type's defaults.
struct ModelGroup {
  std::vector<ModelType> types;
  std::vector<Key> keys;  // beside the keys of all types
};

const ModelGroup& dense_models();
const ModelGroup& mixture_models();
const ModelGroup& latent_models();
const ModelGroup& gpt_oss_models();
const ModelGroup& sigmoid_models();

// Throws Error{internal} for a type of no group.
const ModelType& type_of(std::string_view model_type);

// The keys that a type reads.
std::vector<FieldInfo> keys_of(std::string_view model_type);

// The keys of a group for its table; the help says which types have a key that not all have.
std::vector<FieldInfo> table_of(const ModelGroup& group);

}  // namespace heddle::llama
