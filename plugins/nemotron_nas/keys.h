// Keys of the config.json of nemotron-nas, and the model description built from them.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::nemotron_nas {

// An entry of block_configs.
struct Block {
  int64_t heads_in_group = 0;  // query heads per key head; 0: no attention
  double ffn_mult = 0;         // 0: no MLP
};

struct Keys : decoder::CommonKeys {
  Keys();

  bool attention_bias = false, mlp_bias = false;
  std::vector<Block> blocks;
};

// Returns 2 / 3 of ffn_mult * hidden_size as an integer, rounded up to a multiple of 256.
int64_t mlp_width(double ffn_mult, int64_t hidden_size);

// Reads block_configs: one map per layer.
model::KeyGroup<Keys> block_configs();

decoder::Model model_of(const Keys& keys);

}  // namespace heddle::nemotron_nas
