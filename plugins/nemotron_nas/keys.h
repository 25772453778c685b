// The keys of config.json of nemotron-nas, and the layers that follow from them.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::nemotron_nas {

// One entry of block_configs.
struct Block {
  int64_t heads_in_group = 0;  // heads of queries for one of keys; 0: no attention
  double ffn_mult = 0;         // 0: no MLP
};

struct Keys : decoder::CommonKeys {
  Keys();

  bool attention_bias = false, mlp_bias = false;
  std::vector<Block> blocks;
};

// 2 / 3 of ffn_mult * hidden_size, in whole numbers, and up to the next multiple of 256.
int64_t mlp_width(double ffn_mult, int64_t hidden_size);

// block_configs: a map for each layer.
model::KeyGroup<Keys> block_configs();

decoder::Model model_of(const Keys& keys);

}  // namespace heddle::nemotron_nas
