// Description of the layers of DeepSeek-V4.
#include <map>
#include <string>

#include "heddle/decoder/description.h"
#include "keys.h"

namespace heddle::deepseek_v4 {
namespace {

// Layers of one type share a mixer description.
class Mixers {
 public:
  explicit Mixers(const Keys& keys) : keys_(keys) {}
  std::shared_ptr<const decoder::MixerMaker> of(const std::string& type) {
    auto& made = made_[type];
    if (!made) made = decoder::compressed_attention(form_of(type));
    return made;
  }

 private:
  decoder::CompressedAttention form_of(const std::string& type) const {
    const decoder::RotaryKeys& rotary = type == kSliding ? keys_.rotary : keys_.compressed_rotary;
    decoder::CompressedAttention out;
    out.heads = keys_.num_attention_heads, out.head_dim = keys_.head_width();
    out.rotary = rotary.dim(out.head_dim), out.query_rank = keys_.q_lora_rank;
    out.output_groups = keys_.o_groups, out.output_rank = keys_.o_lora_rank;
    out.window = keys_.sliding_window;
    out.theta = rotary.theta, out.scaling = rotary.scaling;
    out.eps = keys_.rms_norm_eps;
    if (type == kHeavy) out.rate = keys_.heavy_rate;
    if (type != kSparse) return out;
    out.rate = keys_.sparse_rate, out.overlapped = true;
    out.index_heads = keys_.index_n_heads, out.index_head_dim = keys_.index_head_dim;
    out.index_top_k = keys_.index_topk;
    return out;
  }

  const Keys& keys_;
  std::map<std::string, std::shared_ptr<const decoder::MixerMaker>> made_;
};

decoder::Mixture mixture_of(const Keys& keys, bool hashed) {
  using Score = model::RouterRule::Score;
  decoder::Mixture out = keys.mixture();
  out.router.rule.score = keys.scoring_func == "sigmoid" ? Score::sigmoid : Score::sqrt_softplus;
  out.router.in_fp32 = true;
  if (hashed)
    out.router.table_tokens = keys.vocab_size;
  else
    out.router.correction = true;
  out.width = out.shared_width = *keys.moe_intermediate_size;
  out.activation = {.kind = model::ExpertActivation::Kind::clamped_swiglu, .alpha = 1, .shift = 0};
  out.activation.limit = out.shared_limit = keys.swiglu_limit;
  out.shared_limit_before = true;
  return out;
}

}  // namespace

decoder::Model model_of(const Keys& keys) {
  decoder::Model model = keys.model();
  model.hyper_connections = {keys.hc_mult, keys.hc_sinkhorn_iters, keys.hc_eps, keys.rms_norm_eps};
  Mixers mixers(keys);
  for (int64_t i = 0; i < keys.num_hidden_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    decoder::Layer one;
    one.norm = keys.norm();
    one.mixer = mixers.of((*keys.layer_types)[layer]);
    one.feed_forward = mixture_of(keys, (*keys.mlp_layer_types)[layer] == kHashed);
    model.layers.push_back(std::move(one));
  }
  return model;
}

}  // namespace heddle::deepseek_v4
