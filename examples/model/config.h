// Configuration of GPT-2: the keys of its config.json that affect results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "heddle/sdk.h"

namespace gpt2 {

struct Config {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 3072;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  std::string dtype;  // of the stored weights; empty: not in config.json
};

// Returns the table that `heddle plugins inspect gpt2` prints.
std::vector<heddle::FieldInfo> keys();

// Throws Error{config} at the key.
Config read(const heddle::Node& keys, heddle::UnknownKeys unknown);

// Returns a config.json from which transformers reads the same model.
std::string to_json(const Config& config, const std::string& dtype);

}  // namespace gpt2
