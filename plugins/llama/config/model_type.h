// Description of a model type of the family. A new type is an entry of a group in types/.
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
  std::string architecture;  // class in transformers
  // Sets transformers' defaults that differ from ModelConfig's.
  void (*set_defaults)(ModelConfig& config);
  // Reads the keys of the group, after those of all types. Throws Error{config} at a key whose value is
  // impossible or that transformers would compute differently.
  void (*read)(const Node& keys, ModelConfig& config);
  // Writes the keys that read() reads.
  void (*write)(const ModelConfig& config, nlohmann::ordered_json& out);
  decoder::Files files = {};
  bool partial_rotary = false;                                 // whether partial_rotary_factor is used
  double (*benchmark)(const BenchmarkSizes& sizes) = nullptr;  // ModelFacts::benchmark
  std::vector<Node::Entry> automodel_keys = {};                // IModelFamily::automodel_keys()
};

struct Key {
  FieldInfo info;
  std::string types = {};  // types of the group that have the key, separated by spaces; empty: all
};

// Types that share most keys of config.json. A group is one table of the reference, with the first type's
// defaults.
struct ModelGroup {
  std::vector<ModelType> types;
  std::vector<Key> keys;  // in addition to the keys of all types
};

const ModelGroup& dense_models();
const ModelGroup& mixture_models();
const ModelGroup& latent_models();
const ModelGroup& gpt_oss_models();
const ModelGroup& sigmoid_models();

// Throws Error{internal} if no group contains the type.
const ModelType& type_of(std::string_view model_type);

// Returns the model types of every group.
std::vector<std::string> type_names();

// Returns the keys that a type reads.
std::vector<FieldInfo> keys_of(std::string_view model_type);

// Returns the keys of a group for its table. The help names the types that have a key, unless all have it.
std::vector<FieldInfo> table_of(const ModelGroup& group);

}  // namespace heddle::llama
