// Latent attention with Hugging Face's parameter names.
#include "lib/decoder/latent/latent_attention.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "lib/decoder/attention/output_gate.h"
#include "lib/decoder/norm.h"

namespace heddle::decoder {
namespace {

AttentionOptions core_options(const Latent& form) {
  AttentionOptions options;
  options.scale = form.scale;
  options.value_dim = form.value;
  return options;
}

}  // namespace

LatentAttention::LatentAttention(const Latent& form, int64_t width, double init_std, Tables tables,
                                 std::shared_ptr<ChosenKeys> chosen, const at::TensorOptions& options)
    : shape_{form.heads, form.plain, form.rotary, form.value, form.interleaved},
      tables_(std::move(tables)),
      chosen_(std::move(chosen)),
      kv_a_proj_(width, form.rank + form.rotary, bias_if(form.bias), normal(init_std), options),
      kv_b_proj_(form.rank, form.heads * (form.plain + form.value), Linear::Bias::none, normal(init_std),
                 options),
      o_proj_(form.heads * form.value, width, bias_if(form.bias), normal(init_std), options),
      kv_a_layernorm_(form.rank, form.eps, options),
      core_(shape_.key(), core_options(form), {form.heads, form.heads}) {
  const auto layer = [&](int64_t in, int64_t out, bool bias) {
    return std::make_unique<Linear>(in, out, bias_if(bias), normal(init_std), options);
  };
  const int64_t queries = shape_.heads * shape_.key();
  if (form.query_rank == 0) {
    q_proj_ = layer(width, queries, false);
    add_child("q_proj", *q_proj_);
  } else {
    q_a_proj_ = layer(width, form.query_rank, form.bias);
    q_a_layernorm_ = std::make_unique<RmsNorm>(form.query_rank, form.eps, options);
    q_b_proj_ = layer(form.query_rank, queries, false);
    add_child("q_a_proj", *q_a_proj_);
    add_child("q_a_layernorm", *q_a_layernorm_);
    add_child("q_b_proj", *q_b_proj_);
  }
  add_child("kv_a_proj_with_mqa", kv_a_proj_);
  add_child("kv_a_layernorm", kv_a_layernorm_);
  add_child("kv_b_proj", kv_b_proj_);
  add_child("o_proj", o_proj_);
  add_child("core", core_);
  if (form.output_gate) {
    g_proj_ = layer(width, form.heads * form.value, false);
    add_child("g_proj", *g_proj_);
  }
  if (!form.indexer || form.indexer->of_layer_before) return;
  indexer_ = std::make_unique<LightningIndexer>(form, width, init_std, options);
  add_child("indexer", *indexer_);
}

at::Tensor LatentAttention::forward(at::Tensor x, const Batch& batch) {
  return o_proj_.call(heads(x, batch), batch);
}

at::Tensor LatentAttention::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (!output.empty()) return residual + call(std::move(x), batch);
  return o_proj_.call_onto(residual, heads(input(std::move(x), batch), batch), batch);
}

at::Tensor LatentAttention::heads(const at::Tensor& x, const Batch& batch) {
  Linear* const first = q_proj_ ? q_proj_.get() : q_a_proj_.get();
  model::FewTensors both = g_proj_ ? model::call_each({first, &kv_a_proj_, g_proj_.get()}, x, batch)
                                   : model::call_each({first, &kv_a_proj_}, x, batch);
  at::Tensor q = std::move(both[0]), keys;
  if (q_b_proj_) {
    const at::Tensor of_queries = q_a_layernorm_->call(std::move(q), batch);
    if (chosen_) keys = chosen(x, of_queries, batch);
    q = q_b_proj_->call(of_queries, batch);
  }
  auto [latent, shared_key] = split_latent(std::move(both[1]), shape_.rotary);
  const at::Tensor of_latent = kv_b_proj_.call(kv_a_layernorm_.call(std::move(latent), batch), batch);
  const model::RotaryAngles angles = tables_.rotary ? tables_.rotary->angles(batch) : model::RotaryAngles();
  LatentHeads all = assemble_heads(std::move(q), of_latent, shared_key, angles, shape_);
  if (tables_.queries) all.q = all.q * tables_.queries->of(batch, angles.cos, all.q.scalar_type());
  const at::Tensor y = core_.attend(std::move(all.q), std::move(all.k), std::move(all.v), batch, {}, keys);
  return g_proj_ ? gated_output(y, both[2], OutputGate::Function::sigmoid) : y;
}

at::Tensor LatentAttention::chosen(const at::Tensor& x, const at::Tensor& of_queries, const Batch& batch) {
  if (indexer_) chosen_->keys = indexer_->choose(x, of_queries, tables_.rotary->angles(batch), batch);
  return chosen_->for_next ? chosen_->keys : std::exchange(chosen_->keys, {});
}

}  // namespace heddle::decoder
