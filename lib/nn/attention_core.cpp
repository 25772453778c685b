// Attention: one node around ATen's CPU flash kernel, and ATen's own dispatch on other devices.
#include "heddle/nn/attention_core.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <array>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"

namespace heddle {
namespace model {
namespace {

// [tokens, heads * head_dim] as [batch, heads, sequence, head_dim], a view.
at::Tensor by_head(const at::Tensor& x, const Heads& heads) {
  return x.view({heads.batch, heads.sequence, -1, heads.head_dim}).transpose(1, 2);
}

at::Tensor by_token(const at::Tensor& x, at::IntArrayRef shape) {
  return x.transpose(1, 2).reshape(shape);
}

struct AttentionNode final : LayerNode {
  AttentionNode() : LayerNode("AttentionBackward") {}
  Saved q, k, v, out, log_sums;
  std::array<at::ScalarType, 3> dtypes{};  // of q, k and v before autocast
  Heads heads;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor q_saved = q.unpack(), k_saved = k.unpack(), v_saved = v.unpack();
    if (q_saved.is_meta()) return {at::empty_like(q_saved), at::empty_like(k_saved), at::empty_like(v_saved)};
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        by_head(gradients[0].contiguous(), heads), by_head(q_saved, heads), by_head(k_saved, heads),
        by_head(v_saved, heads), by_head(out.unpack(), heads), log_sums.unpack(), 0.0, true);
    return {by_token(dq, q_saved.sizes()).to(dtypes[0]), by_token(dk, k_saved.sizes()).to(dtypes[1]),
            by_token(dv, v_saved.sizes()).to(dtypes[2])};
  }
  void release_variables() override {
    for (Saved* saved : {&q, &k, &v, &out, &log_sums}) saved->reset();
  }
};

struct Attended {
  at::Tensor y, log_sums;
};

// LibTorch has no meta kernel for flash attention: only shapes are computed.
Attended forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Heads& heads) {
  if (q.is_meta()) return {at::empty_like(q), {}};
  Attended all;
  all.y = once(Operator::attention, [&] {
    auto [out, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        by_head(q, heads), by_head(k, heads), by_head(v, heads), 0.0, true);
    all.log_sums = std::move(log_sums);
    return by_token(out, q.sizes());
  });
  all.log_sums = once(Operator::attention, [&] { return std::move(all.log_sums); });
  return all;
}

at::Tensor under_autocast(const at::Tensor& x) {
  const Autocast* autocast = Autocast::active();
  if (autocast == nullptr) [[likely]]
    return x;
  const BelowAutograd below;
  return autocast->value(x);
}

at::Tensor attend_as_one_node(const at::Tensor& q_given, const at::Tensor& k_given, const at::Tensor& v_given,
                              const Heads& heads) {
  const at::Tensor q = under_autocast(q_given), k = under_autocast(k_given), v = under_autocast(v_given);
  std::shared_ptr<AttentionNode> node;
  if (torch::autograd::compute_requires_grad(q_given, k_given, v_given)) {
    node = make_node<AttentionNode>(q_given, k_given, v_given);
    node->q.save(q);
    node->k.save(k);
    node->v.save(v);
    node->dtypes = {q_given.scalar_type(), k_given.scalar_type(), v_given.scalar_type()};
    node->heads = heads;
  }
  Attended out;
  {
    const BelowAutograd below;
    out = forward_of(q, k, v, heads);
  }
  if (!node) return out.y;
  node->out.save_output(out.y);
  node->log_sums.save(out.log_sums);
  torch::autograd::set_history(out.y, node);
  return out.y;
}

}  // namespace

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Heads& heads) {
  if (q.is_cpu() || q.is_meta()) return attend_as_one_node(q, k, v, heads);
  return by_token(at::scaled_dot_product_attention(by_head(q, heads), by_head(k, heads), by_head(v, heads),
                                                   {}, 0.0, true, std::nullopt, q.size(1) != k.size(1)),
                  q.sizes());
}

}  // namespace model

namespace {

at::Tensor attend_itself(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const model::Heads& heads, const Batch& batch) {
  if (batch.documents.defined()) [[unlikely]]
    throw Error(ErrorCode::not_built, "model",
                "this attention does not know documents, and the batch has some (Batch::documents): tokens "
                "would see those of other documents",
                "leave Batch::documents undefined, or use a plugin whose attention knows them");
  return model::attend(q, k, v, heads);
}

}  // namespace

at::Tensor AttentionCore::attend(at::Tensor q, at::Tensor k, at::Tensor v, const Batch& batch) {
  const model::Heads heads{batch.tokens.size(0), batch.tokens.size(1), head_dim_};
  if (instead.empty()) return output(attend_itself(q, k, v, heads, batch), batch);
  const auto own = [](const at::Tensor& by, const at::Tensor& to, const at::Tensor& of,
                      const model::Heads& shape,
                      const Batch& within) { return attend_itself(by, to, of, shape, within); };
  return output(instead.call(own, std::move(q), std::move(k), std::move(v), heads, batch), batch);
}

at::Tensor AttentionCore::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "an attention core takes three tensors",
              "call attend(), not call()");
}

}  // namespace heddle
