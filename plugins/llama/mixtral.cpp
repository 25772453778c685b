// Mixtral: experts in every layer, and a window in all layers.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "keys.h"

namespace heddle::llama {
namespace {

struct MixtralKeys : ExpertKeys {
  MixtralKeys() {
    intermediate_size = 14336, usual_key_heads = 8, max_position_embeddings = 131072, rms_norm_eps = 1e-5;
    rotary.theta = 1e6, experts = 8, experts_of_token = 2;
  }
  std::optional<int64_t> sliding_window;
  double router_jitter_noise = 0;
};

void check_jitter(const Node& noise) {
  if (!(noise.as_real() >= 0 && noise.as_real() < 1))
    model::refuse(noise, "expected a number of at least 0 and below 1, got " + noise.written());
}

model::ModelKeys<MixtralKeys> mixtral_keys() {
  auto keys = add_common<MixtralKeys>("mixtral");
  add_experts(keys, {.experts = "num_local_experts", .width = nullptr}, {"num_experts"}, true);
  keys.field("sliding_window", &MixtralKeys::sliding_window,
             "Sliding-window size in tokens, including the current token.", decoder::kSize)
      .field("router_jitter_noise", &MixtralKeys::router_jitter_noise,
             "Range of the router jitter: in training the inputs of router and experts are multiplied by "
             "factors in [1 - value, 1 + value].",
             Check{"0 to below 1", check_jitter});
  return keys;
}

decoder::Model mixtral_model(const MixtralKeys& keys) {
  decoder::Attention attention = keys.attention();
  attention.options.window = keys.sliding_window.value_or(0);
  decoder::Mixture mixture = keys.mixture();
  mixture.router.jitter = keys.router_jitter_noise;
  return keys.model({attention, mixture, keys.norm()});
}

double mixtral_benchmark(const BenchmarkSizes& m) {
  return decoder::llama_benchmark(m) + m.G * m.S * m.layers * m.h * 18 * m.f * (m.chosen(2) - 1);
}

const decoder::Description<MixtralKeys>& mixtral() {
  static const decoder::Description<MixtralKeys> kMixtral = {
      .model_type = "mixtral",
      .architecture = "MixtralForCausalLM",
      .keys = mixtral_keys(),
      .model = mixtral_model,
      .files = decoder::Files().experts({"block_sparse_moe", "w1", "w3", "w2"}),
      .benchmark = mixtral_benchmark,
      .signature = signature<mixtral>};
  return kMixtral;
}

}  // namespace

void offer_mixtral(Offer& plugin) {
  plugin.model<decoder::Family<mixtral>>("mixtral", mixtral().keys);
}

}  // namespace heddle::llama
