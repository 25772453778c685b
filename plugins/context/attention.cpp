// The node keeps this rank's tensors only: the backward fetches the others' again.
#include "attention.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"

namespace heddle::context {
namespace {

using model::Saved;

struct ContextAttentionNode final : model::LayerNode {
  ContextAttentionNode() : LayerNode("ContextAttentionBackward") {}
  Saved q, k, v, out, log_sums;
  std::array<at::ScalarType, 3> dtypes{};  // of q, k and v before autocast
  model::Heads heads;
  const Exchange* exchange = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    const at::Tensor queries = q.unpack(), keys = k.unpack(), values = v.unpack();
    const AttentionGradient gradient{by_head(gradients[0].contiguous(), heads), by_head(queries, heads),
                                     by_head(out.unpack(), heads), log_sums.unpack()};
    at::Tensor d_queries = at::zeros(queries.sizes(), gradient.log_sums.options());
    at::Tensor by_heads = by_head(d_queries, heads);
    const at::Tensor d_both = exchange->backward(gradient, by_heads, at::stack({keys, values}), heads);
    return {d_queries.to(dtypes[0]), d_both[0].to(dtypes[1]), d_both[1].to(dtypes[2])};
  }
  void release_variables() override {
    for (Saved* saved : {&q, &k, &v, &out, &log_sums}) saved->reset();
  }
};

struct Attended {
  at::Tensor y, log_sums;
};

Attended forward_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const model::Heads& heads,
                    const Exchange& exchange) {
  Attended all;
  all.y = model::once(model::Operator::attention, [&] {
    Joined joined(by_head(q, heads));
    exchange.forward(joined, at::stack({k, v}), heads);
    all.log_sums = joined.log_sums();
    return by_token(joined.out().to(q.scalar_type()), q.sizes());
  });
  all.log_sums = model::once(model::Operator::attention, [&] { return std::move(all.log_sums); });
  return all;
}

at::Tensor under_autocast(const at::Tensor& x) {
  const model::Autocast* autocast = model::Autocast::active();
  if (autocast == nullptr) return x;
  const model::BelowAutograd below;
  return autocast->value(x);
}

void check_device(const at::Tensor& q) {
  if (q.is_cpu() || q.is_meta()) return;
  throw Error(ErrorCode::not_built, "distributed.context.method",
              "the methods allgather and ring are built for the CPU only",
              "set method: ulysses, which uses the device's own attention");
}

}  // namespace

KeysValues both_by_head(const at::Tensor& both, const model::Heads& heads) {
  return {by_head(both[0], heads), by_head(both[1], heads)};
}

at::Tensor attend(const at::Tensor& q_given, const at::Tensor& k_given, const at::Tensor& v_given,
                  const model::Heads& heads, const Exchange& exchange) {
  check_device(q_given);
  const at::Tensor q = under_autocast(q_given), k = under_autocast(k_given), v = under_autocast(v_given);
  std::shared_ptr<ContextAttentionNode> node;
  if (torch::autograd::compute_requires_grad(q_given, k_given, v_given)) {
    node = model::make_node<ContextAttentionNode>(q_given, k_given, v_given);
    node->q.save(q);
    node->k.save(k);
    node->v.save(v);
    node->dtypes = {q_given.scalar_type(), k_given.scalar_type(), v_given.scalar_type()};
    node->heads = heads;
    node->exchange = &exchange;
  }
  Attended out;
  {
    const model::BelowAutograd below;
    out = forward_of(q, k, v, heads, exchange);
  }
  if (!node) return out.y;
  node->out.save_output(out.y);
  node->log_sums.save(out.log_sums);
  torch::autograd::set_history(out.y, node);
  return out.y;
}

}  // namespace heddle::context
