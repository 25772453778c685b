// Autograd node of context-parallel attention. It saves only this rank's tensors, and the backward fetches
// those of other ranks again.
#include "attention.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <utility>

#include "heddle/model/autograd_node.h"
#include "heddle/nn/attention_layout.h"

namespace heddle::context {
namespace {

using model::Saved;

struct ContextAttentionNode final : model::LayerNode {
  ContextAttentionNode() : LayerNode("ContextAttentionBackward") {}
  Saved q, k, v, sinks, out, log_sums;
  std::array<at::ScalarType, 3> dtypes{};  // dtypes of q, k and v before autocast
  Local local;                             // without sinks
  const Exchange* exchange = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    const at::Tensor queries = q.unpack(), keys = k.unpack(), values = v.unpack(), scores = sinks.unpack();
    const at::Tensor sums = log_sums.unpack();
    const AttentionGradient gradient{local,   gradients[0].to(queries.scalar_type()).contiguous(),
                                     queries, out.unpack(),
                                     sums,    at::zeros(queries.sizes(), sums.options())};
    const at::Tensor d_both = exchange->backward(gradient, side_by_side(keys, values));
    model::Gradients all = {gradient.d_queries.to(dtypes[0]), d_both.narrow(1, 0, keys.size(1)).to(dtypes[1]),
                            d_both.narrow(1, keys.size(1), values.size(1)).to(dtypes[2])};
    if (scores.defined()) all.push_back(model::sink_gradient(scores, gradient.d_out, gradient.out, sums));
    return all;
  }
  void release_variables() override {
    for (Saved* saved : {&q, &k, &v, &sinks, &out, &log_sums}) saved->reset();
  }
};

struct Attended {
  at::Tensor y, log_sums;
};

Attended forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Local& local,
                    const Exchange& exchange) {
  Attended all;
  all.y = model::once(model::Operator::attention, [&] {
    Joined joined(q, local);
    exchange.forward(joined, side_by_side(k, v));
    joined.finish();
    all.log_sums = joined.log_sums();
    return joined.out().to(q.scalar_type());
  });
  all.log_sums = model::once(model::Operator::attention, [&] { return std::move(all.log_sums); });
  return all;
}

at::Tensor readable(const at::Tensor& x) {
  const at::Tensor cast = model::under_autocast(x);
  if (cast.is_meta() || model::has_attention_kernel(cast)) return cast;
  const model::BelowAutograd below;
  return cast.contiguous();
}

}  // namespace

at::Tensor attend(const at::Tensor& q_given, const at::Tensor& k_given, const at::Tensor& v_given,
                  const Local& local, const Exchange& exchange) {
  const at::Tensor q = readable(q_given), k = readable(k_given), v = readable(v_given);
  const at::Tensor& sinks = local.heads.sinks;
  std::shared_ptr<ContextAttentionNode> node;
  if (torch::autograd::compute_requires_grad(q_given, k_given, v_given, sinks)) {
    node = sinks.defined() ? model::make_node<ContextAttentionNode>(q_given, k_given, v_given, sinks)
                           : model::make_node<ContextAttentionNode>(q_given, k_given, v_given);
    node->q.save(q);
    node->k.save(k);
    node->v.save(v);
    node->sinks.save_weight(sinks);
    node->dtypes = {q_given.scalar_type(), k_given.scalar_type(), v_given.scalar_type()};
    node->local = local;
    node->local.heads.sinks.reset();
    node->exchange = &exchange;
  }
  Attended out;
  {
    const model::BelowAutograd below;
    out = forward_of(q, k, v, local, exchange);
  }
  if (!node) return out.y;
  node->out.save_output(out.y);
  node->log_sums.save(out.log_sums);
  torch::autograd::set_history(out.y, node);
  return out.y;
}

}  // namespace heddle::context
