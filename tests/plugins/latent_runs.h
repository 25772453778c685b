// Runs of small models with latent attention, a router with groups and a correction bias that moves.
#pragma once

#include "plugins/tensor_training.h"

namespace heddle::tests {

// A dense layer, then two with eight experts in four groups of which a token chooses two; sizes that divide
// by nothing. Four microbatches of 21 tokens.
inline Training deepseek() {
  Training run = four_heads("deepseek_v3");
  run.model.num_hidden_layers = 3;
  run.model.num_key_value_heads = 8;
  run.model.latent = {.rank = 9, .query_rank = 11, .plain = 5, .rotary = 4, .value = 7};
  run.model.head_dim = 4;
  llama::Mixture& mixture = run.model.mixture;
  mixture.experts = 8, mixture.top_k = 3, mixture.width = 5;
  mixture.shared_width = 10, mixture.shared_gate = false;
  mixture.score = model::RouterRule::Score::sigmoid;
  mixture.groups = 4, mixture.top_groups = 2, mixture.group_best = 2;
  mixture.normalise = true, mixture.scale = 1.5;
  mixture.correction = true, mixture.correction_rate = 0.03;
  mixture.first_sparse = 1;
  mixture.balance = {model::BalanceLoss::Form::sequence, 0.02};
  return run;
}

}  // namespace heddle::tests
