// Attention as one node, on every device: what it saves and when it computes again is the same.
#include "heddle/nn/attention_core.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>

#include <array>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/attention_layout.h"
#include "lib/nn/attention/attend_composite.h"
#include "lib/nn/attention/attend_device.h"
#include "lib/nn/attention/attend_fused.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle {
namespace model {
namespace {

// How a forward computes; its backward does the same.
struct Way {
  Fused fused = Fused::none;
  // Set on a device where no fused kernel takes the call, for chosen keys, and with dropout.
  std::shared_ptr<const DeviceRanges> ranges;
  WeightDropout dropout;
  bool by_products = false;  // on every device
};

WeightDropout dropout_of(const Heads& heads) {
  if (!heads.draws.defined() || heads.options.dropout == 0) return {};
  return {heads.options.dropout, heads.draws.reshape(-1), heads.sequence, heads.salt};
}

Way choose_way(const BlockedInputs& in, const Heads& heads, const at::Tensor& documents) {
  if (in.q.is_meta()) return {};
  const BelowAutograd below;
  const WeightDropout dropout = dropout_of(heads);
  if (heads.chosen.defined() || dropout.p > 0)
    return {Fused::none, kept_ranges(heads, documents, in.q), dropout, true};
  if (in.q.is_cpu()) return {};
  const Fused fused = fused_kernel(in.q, in.k, in.v, heads, documents);
  if (fused != Fused::none) return {fused, nullptr, {}, false};
  return {Fused::none, kept_ranges(heads, documents, in.q), {}, false};
}

struct AttentionNode final : LayerNode {
  AttentionNode() : LayerNode("AttentionBackward") {}
  Saved q, k, v, sinks, chosen, out, log_sums;
  std::array<at::ScalarType, 3> dtypes{};  // of q, k and v before autocast
  Heads heads;                             // without the sinks, the chosen keys and the draws
  at::Tensor documents;
  Way way;

  Gradients backward(Gradients&& gradients) override {
    const BlockedInputs in{q.unpack(), k.unpack(), v.unpack(), {}};
    const at::Tensor sink_scores = sinks.unpack();
    Gradients all;
    if (in.q.is_meta()) {
      record_attention(in, heads, Pass::backward);
      all = {at::empty_like(in.q), at::empty_like(in.k), at::empty_like(in.v)};
      if (sink_scores.defined()) all.push_back(at::empty_like(sink_scores));
      return all;
    }
    heads.chosen = chosen.unpack();
    const at::Tensor d_out = gradients[0].to(in.q.scalar_type()).contiguous(), result = out.unpack();
    all = through(in, d_out, result);
    for (size_t i = 0; i < dtypes.size(); ++i) all[i] = all[i].to(dtypes[i]);
    if (sink_scores.defined()) all.push_back(sink_gradient(sink_scores, d_out, result, log_sums.unpack()));
    return all;
  }
  Gradients through(const BlockedInputs& in, const at::Tensor& d_out, const at::Tensor& result) {
    if (way.fused != Fused::none) {
      auto [d_q, d_k, d_v] =
          attend_fused_backward(way.fused, d_out, in.q, in.k, in.v, {result, log_sums.unpack()}, heads);
      return {std::move(d_q), std::move(d_k), std::move(d_v)};
    }
    const BlockedGradients into{at::empty_like(in.q, at::MemoryFormat::Contiguous),
                                at::empty_like(in.k, at::MemoryFormat::Contiguous),
                                at::empty_like(in.v, at::MemoryFormat::Contiguous)};
    if (way.by_products)
      attend_composite_backward(in, *way.ranges, blocked_shape(heads), d_out, result, log_sums.unpack(), into,
                                false, heads.chosen, way.dropout);
    else if (way.ranges)
      attend_on_device_backward(in, *way.ranges, blocked_shape(heads), d_out, result, log_sums.unpack(),
                                into);
    else
      attend_blocked_backward_cpu({in.q, in.k, in.v, visible_keys(heads, documents)}, blocked_shape(heads),
                                  d_out, result, log_sums.unpack(), into);
    return {into.q, into.k, into.v};
  }
  void release_variables() override {
    for (Saved* saved : {&q, &k, &v, &sinks, &chosen, &out, &log_sums}) saved->reset();
    heads.chosen.reset();
  }
};

struct Attended {
  at::Tensor y, log_sums;
};

at::Tensor compute(const BlockedInputs& in, const Heads& heads, const at::Tensor& documents, const Way& way,
                   at::Tensor& log_sums) {
  RECORD_FUNCTION("heddle::attention", {});
  if (way.fused != Fused::none) {
    FusedResult result = attend_fused(way.fused, in.q, in.k, in.v, heads);
    log_sums = std::move(result.log_sums);
    return std::move(result.out);
  }
  const int64_t tokens = in.q.size(0), count = in.q.size(1) / heads.head_dim;
  log_sums = at::empty({count, tokens}, in.q.options().dtype(accumulation_dtype(in.q.scalar_type())));
  at::Tensor out = at::empty({tokens, count * heads.value_dim()}, in.q.options());
  if (way.by_products)
    attend_composite(in, *way.ranges, blocked_shape(heads), out, log_sums, false, heads.chosen, way.dropout);
  else if (way.ranges)
    attend_on_device(in, *way.ranges, blocked_shape(heads), out, log_sums);
  else
    attend_blocked_cpu({in.q, in.k, in.v, visible_keys(heads, documents)}, blocked_shape(heads), out,
                       log_sums);
  if (heads.sinks.defined()) add_sinks(heads.sinks, out, log_sums);
  return out;
}

Attended forward_of(const BlockedInputs& in, const Heads& heads, const at::Tensor& documents,
                    const Way& way) {
  const int64_t tokens = in.q.size(0), count = in.q.size(1) / heads.head_dim;
  Attended all;
  if (in.q.is_meta()) {
    all.y = once(Operator::attention, [&] {
      record_attention(in, heads, Pass::forward);
      return at::empty({tokens, count * heads.value_dim()}, in.q.options());
    });
    all.log_sums = once(Operator::attention, [&] {
      return at::empty({count, tokens}, in.q.options().dtype(accumulation_dtype(in.q.scalar_type())));
    });
    return all;
  }
  all.y = once(Operator::attention, [&] { return compute(in, heads, documents, way, all.log_sums); });
  all.log_sums = once(Operator::attention, [&] { return std::move(all.log_sums); });
  return all;
}

// Elements of a row side by side, as the kernels read them.
at::Tensor readable(const at::Tensor& x) {
  const at::Tensor cast = under_autocast(x);
  if (cast.is_meta() || has_attention_kernel(cast) || (!cast.is_cpu() && cast.stride(1) == 1)) [[likely]]
    return cast;
  const BelowAutograd below;
  return cast.contiguous();
}

}  // namespace

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Heads& heads,
                  const at::Tensor& documents) {
  const BlockedInputs in{readable(q), readable(k), readable(v), {}};
  const Way way = choose_way(in, heads, documents);
  std::shared_ptr<AttentionNode> node;
  if (torch::autograd::compute_requires_grad(q, k, v, heads.sinks)) {
    node = heads.sinks.defined() ? make_node<AttentionNode>(q, k, v, heads.sinks)
                                 : make_node<AttentionNode>(q, k, v);
    node->q.save(in.q);
    node->k.save(in.k);
    node->v.save(in.v);
    node->sinks.save_weight(heads.sinks);
    node->chosen.save(heads.chosen);
    node->dtypes = {q.scalar_type(), k.scalar_type(), v.scalar_type()};
    node->heads = heads;
    node->heads.sinks.reset();
    node->heads.chosen.reset();
    node->heads.draws.reset();
    node->documents = documents;
    node->way = way;
  }
  Attended out;
  {
    const BelowAutograd below;
    out = forward_of(in, heads, documents, way);
  }
  if (!node) return out.y;
  node->out.save_output(out.y);
  node->log_sums.save(out.log_sums);
  torch::autograd::set_history(out.y, node);
  return out.y;
}

}  // namespace model

ModuleTraits AttentionCore::traits() const {
  ModuleTraits out{.tokens = TokenUse::mixes, .role = Role::attention_core};
  if (options_.dropout == 0) return out;
  out.draws = true;
  out.refuses = {{"tp", "dropout of attention under tensor parallelism is not built yet"},
                 {"cp", "dropout of attention under context parallelism is not built yet"}};
  return out;
}

at::Tensor AttentionCore::attend(at::Tensor q, at::Tensor k, at::Tensor v, const Batch& batch,
                                 const at::Tensor& sinks, const at::Tensor& chosen) {
  const model::Heads heads{batch.tokens.size(0),
                           batch.tokens.size(1),
                           head_dim_,
                           options_,
                           sinks,
                           chosen,
                           options_.dropout > 0 ? batch.draws : at::Tensor(),
                           salt_};
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
