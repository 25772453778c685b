// Runs of small models under tensor parallelism.
#pragma once

#include <string>

#include "plugins/toy_training.h"

namespace heddle::tests {

inline const std::string kSequence = "sequence_parallel: true";
inline const std::string kOverlapped = "{sequence_parallel: true, enable_async_tensor_parallel: true}";

// Heads that four ranks can share, and nothing else that divides: 53 words, 23 columns, 21 rows a microbatch.
inline Training four_heads(const std::string& model_type = "llama") {
  Training run;
  run.model.model_type = model_type;
  run.model.vocab_size = 53;
  run.model.hidden_size = 14;
  run.model.intermediate_size = 23;
  run.model.num_hidden_layers = 2;
  run.model.num_attention_heads = 8;
  run.model.num_key_value_heads = 4;
  run.model.head_dim = 6;
  run.model.qkv_bias = model_type == "qwen2";
  run.model.qk_norm = model_type == "qwen3";
  run.microbatches = 4;
  return run;
}

// The same on `tp` ranks, under `single`.
inline Training over_tp(Training run, int tp, const std::string& fields = "{}") {
  run.axes = {{"pp", 1}, {"tp", tp}};
  run.parallelizers = {{"tensor", fields}};
  return run;
}

}  // namespace heddle::tests
