// Keys of the config.json of Nemotron-H, and the model description built from them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::nemotron_h {

struct Keys : decoder::CommonKeys, decoder::MixtureKeys {
  Keys();

  // Letters of the layers, and of the layers of a multi-token prediction head: M Mamba-2, * attention, - an
  // MLP, E experts.
  std::optional<std::string> hybrid_override_pattern, mtp_hybrid_override_pattern;
  std::optional<std::vector<std::string>> layers_block_type, mtp_layers_block_type;
  int64_t num_nextn_predict_layers = 0;
  bool mtp_use_repeated_layer = false;
  double mtp_loss_scaling_factor = 0.1;

  bool mlp_bias = false, use_bias = false, use_conv_bias = true;
  bool rescale_prenorm_residual = true;
  int64_t mamba_num_heads = 128, mamba_head_dim = 64, ssm_state_size = 128, n_groups = 8, conv_kernel = 4;
  double shortest_step = 0, longest_step = std::numeric_limits<double>::infinity();

  int64_t moe_shared_expert_intermediate_size = 7688;
  std::optional<int64_t> moe_latent_size;
};

// Derives patterns from lists of words, and the number of layers from the pattern.
void fill_patterns(Keys& keys);
// Describes why the keys are invalid; empty if they are valid.
std::string complaint_of_patterns(const Keys& keys);
std::string complaint_of_experts(const Keys& keys);

decoder::Model model_of(const Keys& keys);
double benchmark(const BenchmarkSizes& sizes);

}  // namespace heddle::nemotron_h
