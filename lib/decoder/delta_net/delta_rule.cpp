// Converts rows of tokens to chunks of heads and back, and computes the gates.
#include "lib/decoder/delta_net/delta_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include <cmath>
#include <memory>
#include <utility>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/delta_net/delta_chunks.h"
#include "lib/decoder/recurrence/recurrence_cost.h"
#include "lib/decoder/recurrence/row_chunks.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::accumulation_dtype;
using model::BelowAutograd;
using model::Gradients;

// x divided by its norm, and the inverse norm.
struct Unit {
  at::Tensor x, root;
};

Unit unit(at::Tensor x) {
  constexpr double kEps = 1e-6;
  at::Tensor root = (x * x).sum(-1, true).add_(kEps).rsqrt_();
  return {x * root, std::move(root)};
}

at::Tensor unit_backward(const at::Tensor& d, const Unit& of) {
  return (d - of.x * (d * of.x).sum(-1, true)) * of.root;
}

// Inputs of the rule for all tokens.
struct Made {
  DeltaChunks chunks;
  Unit q, k;         // chunks.q is q.x * scale
  at::Tensor open;   // [tokens, value_heads, decays]: a + bias, in the accumulation dtype
  at::Tensor rate;   // [value_heads, 1]: exp(a_log), in the accumulation dtype
  at::Tensor decay;  // [tokens, value_heads, decays]
  at::Tensor beta;   // [tokens, value_heads]
};

RowChunks chunks_of(const DeltaHeads& heads, const TokenRows& tokens) {
  return {heads.key_heads, heads.value_heads / heads.key_heads, tokens, kDeltaChunk, heads.channels};
}

double scale_of(const DeltaHeads& heads) {
  return 1 / std::sqrt(static_cast<double>(heads.key));
}

Made make(const DeltaInputs& in, const DeltaHeads& heads, const RowChunks& chunking) {
  const at::ScalarType wide = accumulation_dtype(in.v.scalar_type());
  Made out;
  out.q = unit(chunking.shared(in.q));
  out.k = unit(chunking.shared(in.k));
  out.open = (in.a.to(wide) + in.bias.to(wide)).view({-1, heads.value_heads, heads.decays()});
  out.rate = in.a_log.to(wide).exp().unsqueeze(1);
  out.decay =
      heads.lowest < 0 ? at::sigmoid(out.open * out.rate) * heads.lowest : at::softplus(out.open) * -out.rate;
  out.beta = at::sigmoid(in.b.to(wide));
  out.chunks = {
      out.q.x * scale_of(heads), out.k.x, chunking.of_heads(in.v),
      heads.channels ? chunking.of_heads(out.decay.flatten(1)) : chunking.gates(out.decay.flatten(1)),
      chunking.gates(out.beta)};
  out.chunks.marks = chunking.marks(in.v.options());
  return out;
}

// Returns the gradients of made.open and, times the rate, of each decay's rate, from those of the decays.
std::pair<at::Tensor, at::Tensor> through_gate(const at::Tensor& d_decay, const Made& made,
                                               const DeltaHeads& heads) {
  if (heads.lowest == 0) return {d_decay * at::sigmoid(made.open) * -made.rate, d_decay * made.decay};
  const at::Tensor d_open = d_decay * made.decay * at::sigmoid(made.open * -made.rate) * made.rate;
  return {d_open, d_open * made.open};
}

void record_rule(const char* name, const DeltaInputs& in, const DeltaHeads& heads, bool backward) {
  record_recurrence(name, {&in.q, &in.k, &in.v, &in.a, &in.b}, in.v,
                    4 * static_cast<double>(heads.value_heads * heads.value * heads.key), backward);
}

// Edges: q, k, v, a, b, a_log, bias.
struct DeltaRuleNode final : model::LayerNode {
  DeltaRuleNode() : LayerNode("DeltaRuleBackward") {}
  model::Saved q, k, v, a, b, a_log, bias;
  DeltaHeads heads;
  TokenRows tokens;

  Gradients backward(Gradients&& gradients) override {
    const DeltaInputs in{q.unpack(), k.unpack(),     v.unpack(),   a.unpack(),
                         b.unpack(), a_log.unpack(), bias.unpack()};
    if (in.v.is_meta()) {
      record_rule("heddle::delta_rule_backward", in, heads, /*backward=*/true);
      return like(in);
    }
    const RowChunks chunking = chunks_of(heads, tokens);
    const Made made = make(in, heads, chunking);
    const DeltaGradients d = delta_backward(made.chunks, chunking.of_heads(gradients[0]));
    Gradients out(7);
    out[0] = chunking.rows_of_shared(unit_backward(d.q * scale_of(heads), made.q), in.q.scalar_type());
    out[1] = chunking.rows_of_shared(unit_backward(d.k, made.k), in.k.scalar_type());
    out[2] = chunking.rows_of_heads(d.v, in.v.scalar_type());
    const at::ScalarType wide = made.decay.scalar_type();
    const at::Tensor d_decay =
        (heads.channels ? chunking.rows_of_heads(d.decay, wide) : chunking.rows_of_gates(d.decay, wide))
            .view_as(made.decay);
    const auto [open, d_rate] = through_gate(d_decay, made, heads);
    const at::Tensor d_open = open.flatten(1);
    out[3] = d_open.to(in.a.scalar_type());
    out[4] = (chunking.rows_of_gates(d.beta, wide) * made.beta * (1 - made.beta)).to(in.b.scalar_type());
    out[5] = d_rate.sum(at::IntArrayRef{0, 2}).to(in.a_log.scalar_type());
    out[6] = d_open.sum(0).to(in.bias.scalar_type());
    return out;
  }
  static Gradients like(const DeltaInputs& in) {
    Gradients out;
    for (const at::Tensor* one : {&in.q, &in.k, &in.v, &in.a, &in.b, &in.a_log, &in.bias})
      out.push_back(at::empty_like(*one));
    return out;
  }
  void release_variables() override {
    for (model::Saved* saved : {&q, &k, &v, &a, &b, &a_log, &bias}) saved->reset();
  }
};

at::Tensor computed(const DeltaInputs& in, const DeltaHeads& heads, const TokenRows& tokens,
                    at::Tensor* state) {
  if (in.v.is_meta()) {
    record_rule("heddle::delta_rule", in, heads, /*backward=*/false);
    return at::empty(in.v.sizes(), in.v.options());
  }
  const RowChunks chunking = chunks_of(heads, tokens);
  const DeltaResult result =
      delta_forward(make(in, heads, chunking).chunks, state == nullptr ? at::Tensor() : *state);
  if (state != nullptr) *state = result.last;
  return chunking.rows_of_heads(result.out, in.v.scalar_type());
}

}  // namespace

at::Tensor delta_rule(const DeltaInputs& in, const DeltaHeads& heads, const TokenRows& tokens,
                      at::Tensor* state) {
  return model::forward_with<DeltaRuleNode>(
      [&](DeltaRuleNode& node) {
        node.q.save(in.q);
        node.k.save(in.k);
        node.v.save(in.v);
        node.a.save(in.a);
        node.b.save(in.b);
        node.a_log.save_weight(in.a_log);
        node.bias.save_weight(in.bias);
        node.heads = heads;
        node.tokens = tokens;
      },
      [&] { return computed(in, heads, tokens, state); }, in.q, in.k, in.v, in.a, in.b, in.a_log, in.bias);
}

}  // namespace heddle::decoder
