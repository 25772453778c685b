// DeepSeek-V2, DeepSeek-V3 and Kimi-K2.
#include "families.h"
#include "heddle/decoder/benchmark.h"
#include "latent.h"

namespace heddle::llama {
namespace {

constexpr const char *kGreedy = "greedy", *kByGroup = "group_limited_greedy";

struct DeepSeekV2Keys : LatentKeys {
  DeepSeekV2Keys() {
    vocab_size = 102400;
    experts = 64, experts_of_token = 0, expert_width = 1407, normalised = false, shared = 2;
  }
  std::string topk_method = kGreedy;
};

// Without groups both methods select the same experts.
void settle_method(DeepSeekV2Keys& keys) {
  if (keys.topk_method == kGreedy) keys.groups = keys.top_groups = 1;
  if (keys.groups == 1) keys.topk_method = kGreedy;
}

model::ModelKeys<DeepSeekV2Keys> deepseek_v2_keys() {
  auto keys = add_common<DeepSeekV2Keys>("deepseek_v2", kLatentForm);
  add_latent_attention(keys);
  keys.field("topk_method", &DeepSeekV2Keys::topk_method,
             "Group selection: group_limited_greedy scores each group by its best expert. No effect with one "
             "group.",
             OneOf{{kGreedy, kByGroup}})
      .field("n_group", &DeepSeekV2Keys::groups, "Number of expert groups. No effect with greedy.",
             decoder::kSize)
      .field("topk_group", &DeepSeekV2Keys::top_groups,
             "Number of groups from which the experts of a token are selected. No effect with greedy.",
             decoder::kSize)
      .then(settle_method);
  add_latent_experts(keys,
                     {.experts = "n_routed_experts", .scale = "routed_scaling_factor", .in_fp32 = true});
  add_first_dense(keys);
  keys.only("scoring_func", Node::text("softmax"), "Function that converts router logits to scores.")
      .only("norm_topk_prob", Node::boolean(false), "transformers does not normalize the routing weights.")
      .rule([](const DeepSeekV2Keys& read) {
        return std::string(read.experts_of_token == 0 ? "num_experts_per_tok is missing" : "");
      });
  add_check<DeepSeekV2Keys>(keys, [](const Node& given, DeepSeekV2Keys& read) {
    check_heads_divide(given, read, "deepseek_v2");
    check_groups(given, read, "n_routed_experts", 1);
  });
  return keys;
}

model::ModelKeys<CorrectedKeys> deepseek_v3_keys(const std::string& model_type) {
  auto keys = corrected_keys<CorrectedKeys>(model_type);
  add_first_dense(keys);
  return keys;
}

decoder::Model deepseek_v2_model(const DeepSeekV2Keys& keys) {
  return latent_model(keys, false);
}

decoder::Model deepseek_v3_model(const CorrectedKeys& keys) {
  return latent_model(keys, true);
}

// Counts one shared expert, whatever n_shared_experts is. A number in moe_layer_freq counts from the first
// layer.
double deepseek_v3_benchmark(const BenchmarkSizes& m) {
  const double frequency = m.of("moe_layer_freq", 0);
  if (frequency < 1) return decoder::latent_benchmark(m, 1, m.expert_layers());
  const auto each = static_cast<int64_t>(frequency), layers = static_cast<int64_t>(m.layers);
  return decoder::latent_benchmark(m, 1, static_cast<double>((layers + each - 1) / each));
}

const decoder::Description<DeepSeekV2Keys>& deepseek_v2() {
  static const decoder::Description<DeepSeekV2Keys> kDeepSeek = {.model_type = "deepseek_v2",
                                                                 .architecture = "DeepseekV2ForCausalLM",
                                                                 .keys = deepseek_v2_keys(),
                                                                 .model = deepseek_v2_model,
                                                                 .signature = signature<deepseek_v2>};
  return kDeepSeek;
}

const decoder::Description<CorrectedKeys>& deepseek_v3() {
  static const decoder::Description<CorrectedKeys> kDeepSeek = {
      .model_type = "deepseek_v3",
      .architecture = "DeepseekV3ForCausalLM",
      .keys = deepseek_v3_keys("deepseek_v3"),
      .model = deepseek_v3_model,
      .benchmark = deepseek_v3_benchmark,
      .automodel_keys = decoder::automodel_bias_update(),
      .signature = signature<deepseek_v3>};
  return kDeepSeek;
}

// transformers has no code for this model_type.
const decoder::Description<CorrectedKeys>& kimi_k2() {
  static const decoder::Description<CorrectedKeys> kKimi = {
      .model_type = "kimi_k2",
      .architecture = "DeepseekV3ForCausalLM",
      .keys = deepseek_v3_keys("kimi_k2"),
      .model = deepseek_v3_model,
      .benchmark = decoder::latent_benchmark_of_keys,
      .automodel_keys = decoder::automodel_bias_update(),
      .signature = signature<kimi_k2>};
  return kKimi;
}

}  // namespace

void offer_deepseek(Offer& plugin) {
  plugin.model<decoder::Family<deepseek_v2>>("deepseek_v2", deepseek_v2().keys);
  plugin.model<decoder::Family<deepseek_v3>>("deepseek_v3", deepseek_v3().keys);
  plugin.model<decoder::Family<kimi_k2>>("kimi_k2", kimi_k2().keys);
}

}  // namespace heddle::llama
