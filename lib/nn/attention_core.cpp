// Attention: one node around attend_ranges(), and LibTorch's operator for whole rows on other devices.
#include "heddle/nn/attention_core.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>

#include <array>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/attention_layout.h"
#include "lib/nn/attention/attend_device.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle {
namespace model {
namespace {

struct AttentionNode final : LayerNode {
  AttentionNode() : LayerNode("AttentionBackward") {}
  Saved q, k, v, sinks, out, log_sums;
  std::array<at::ScalarType, 3> dtypes{};  // of q, k and v before autocast
  Heads heads;                             // without the sinks
  at::Tensor documents;

  Gradients backward(Gradients&& gradients) override {
    const BlockedInputs in{q.unpack(), k.unpack(), v.unpack(), {}};
    const at::Tensor sink_scores = sinks.unpack();
    const BlockedGradients into{at::empty_like(in.q, at::MemoryFormat::Contiguous),
                                at::empty_like(in.k, at::MemoryFormat::Contiguous),
                                at::empty_like(in.v, at::MemoryFormat::Contiguous)};
    Gradients all = {into.q, into.k, into.v};
    if (sink_scores.defined()) all.push_back(at::empty_like(sink_scores));
    if (in.q.is_meta()) return all;
    const at::Tensor d_out = gradients[0].to(in.q.scalar_type()).contiguous(), result = out.unpack();
    attend_ranges_backward({in.q, in.k, in.v, visible_keys(heads, documents)}, blocked_shape(heads), d_out,
                           result, log_sums.unpack(), into);
    for (size_t i = 0; i < dtypes.size(); ++i) all[i] = all[i].to(dtypes[i]);
    if (sink_scores.defined()) all[3] = sink_gradient(sink_scores, d_out, result, log_sums.unpack());
    return all;
  }
  void release_variables() override {
    for (Saved* saved : {&q, &k, &v, &sinks, &out, &log_sums}) saved->reset();
  }
};

struct Attended {
  at::Tensor y, log_sums;
};

Attended forward_of(const BlockedInputs& in, const Heads& heads, const at::Tensor& documents) {
  const int64_t tokens = in.q.size(0), count = in.q.size(1) / heads.head_dim;
  const auto empty_out = [&] { return at::empty({tokens, count * heads.value_dim()}, in.q.options()); };
  if (in.q.is_meta()) return {empty_out(), {}};
  Attended all;
  all.y = once(Operator::attention, [&] {
    RECORD_FUNCTION("heddle::attention", {});
    all.log_sums = at::empty({count, tokens}, in.q.options().dtype(wide_of(in.q.scalar_type())));
    const at::Tensor out = empty_out();
    attend_ranges({in.q, in.k, in.v, visible_keys(heads, documents)}, blocked_shape(heads), out,
                  all.log_sums);
    if (heads.sinks.defined()) add_sinks(heads.sinks, out, all.log_sums);
    return out;
  });
  all.log_sums = once(Operator::attention, [&] { return std::move(all.log_sums); });
  return all;
}

// Elements of a row side by side, as the kernel reads them.
at::Tensor readable(const at::Tensor& x) {
  const at::Tensor cast = under_autocast(x);
  if (cast.is_meta() || has_attention_kernel(cast)) [[likely]]
    return cast;
  const BelowAutograd below;
  return cast.contiguous();
}

at::Tensor attend_as_one_node(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const Heads& heads, const at::Tensor& documents) {
  const BlockedInputs in{readable(q), readable(k), readable(v), {}};
  std::shared_ptr<AttentionNode> node;
  if (torch::autograd::compute_requires_grad(q, k, v, heads.sinks)) {
    node = heads.sinks.defined() ? make_node<AttentionNode>(q, k, v, heads.sinks)
                                 : make_node<AttentionNode>(q, k, v);
    node->q.save(in.q);
    node->k.save(in.k);
    node->v.save(in.v);
    node->sinks.save_weight(heads.sinks);
    node->dtypes = {q.scalar_type(), k.scalar_type(), v.scalar_type()};
    node->heads = heads;
    node->heads.sinks.reset();
    node->documents = documents;
  }
  Attended out;
  {
    const BelowAutograd below;
    out = forward_of(in, heads, documents);
  }
  if (!node) return out.y;
  node->out.save_output(out.y);
  node->log_sums.save(out.log_sums);
  torch::autograd::set_history(out.y, node);
  return out.y;
}

}  // namespace

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Heads& heads,
                  const at::Tensor& documents) {
  if (q.is_cpu() || q.is_meta() || documents.defined()) [[likely]]
    return attend_as_one_node(q, k, v, heads, documents);
  return attend_on_device(q, k, v, heads);
}

}  // namespace model

at::Tensor AttentionCore::attend(at::Tensor q, at::Tensor k, at::Tensor v, const Batch& batch,
                                 const at::Tensor& sinks) {
  const model::Heads heads{batch.tokens.size(0), batch.tokens.size(1), head_dim_, options_, sinks};
  if (instead.empty()) return output(model::attend(q, k, v, heads, batch.documents), batch);
  const auto own = [](const at::Tensor& by, const at::Tensor& to, const at::Tensor& of,
                      const model::Heads& shape,
                      const Batch& within) { return model::attend(by, to, of, shape, within.documents); };
  return output(instead.call(own, std::move(q), std::move(k), std::move(v), heads, batch), batch);
}

at::Tensor AttentionCore::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "an attention core takes three tensors",
              "call attend(), not call()");
}

}  // namespace heddle
