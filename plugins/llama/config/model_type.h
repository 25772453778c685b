// What a model type of the family has of its own. A new type is an entry of a group in types/.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "heddle/decoder/family.h"
#include "model_config.h"

namespace heddle::llama {

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
  decoder::Files files = {};
  bool partial_rotary = false;                                 // partial_rotary_factor acts
  double (*benchmark)(const BenchmarkSizes& sizes) = nullptr;  // ModelFacts::benchmark
  std::vector<Node::Entry> automodel_keys = {};                // IModelFamily::automodel_keys()
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

// model_type of every group.
std::vector<std::string> type_names();

// The keys that a type reads.
std::vector<FieldInfo> keys_of(std::string_view model_type);

// The keys of a group for its table; the help says which types have a key that not all have.
std::vector<FieldInfo> table_of(const ModelGroup& group);

}  // namespace heddle::llama
