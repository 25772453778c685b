// From rows of tokens to chunks of heads and back, and the gates.
#include "lib/decoder/delta_net/delta_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/delta_net/delta_chunks.h"
#include "lib/decoder/delta_net/document_marks.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::BelowAutograd;
using model::Gradients;
using model::wide_of;

// Rows of tokens as chunks, filled up with zeros, which neither decay nor write.
class Chunking {
 public:
  Chunking(const DeltaHeads& heads, const TokenRows& tokens)
      : heads_(heads),
        tokens_(tokens),
        length_(std::min(kDeltaChunk, tokens.sequence)),
        count_((tokens.sequence + length_ - 1) / length_) {}

  // [tokens, key_heads * width] to [B, G, N, C, width], wide.
  at::Tensor keys(const at::Tensor& x) const {
    return filled(x, {heads_.key_heads, -1}).permute({0, 3, 1, 2, 4}).contiguous();
  }
  // [tokens, value_heads * width] to [B, G, R, N, C, width].
  at::Tensor values(const at::Tensor& x) const {
    return filled(x, {heads_.key_heads, heads_.value_heads / heads_.key_heads, -1})
        .permute({0, 3, 4, 1, 2, 5})
        .contiguous();
  }
  // [tokens, value_heads] to [B, G, R, N, C].
  at::Tensor gates(const at::Tensor& x) const { return values(x).squeeze(-1); }

  // The ways back, in x's dtype.
  at::Tensor of_keys(const at::Tensor& x, at::ScalarType dtype) const {
    return cut(x.permute({0, 2, 3, 1, 4}), dtype);
  }
  at::Tensor of_values(const at::Tensor& x, at::ScalarType dtype) const {
    return cut(x.permute({0, 3, 4, 1, 2, 5}), dtype);
  }
  at::Tensor of_gates(const at::Tensor& x, at::ScalarType dtype) const {
    return of_values(x.unsqueeze(-1), dtype);
  }

  void add_documents(DeltaChunks& chunks) const {
    if (!tokens_.documents.defined()) return;
    at::Tensor document =
        marks_of(tokens_.documents, tokens_.rows, tokens_.sequence, chunks.v.options()).document;
    const at::Tensor last = document.narrow(1, tokens_.sequence - 1, 1);
    if (const int64_t more = count_ * length_ - tokens_.sequence; more > 0)
      document = at::cat({document, last.expand({tokens_.rows, more})}, 1);
    document = document.view({tokens_.rows, 1, 1, count_, length_});
    const at::Tensor at_end = document.narrow(-1, length_ - 1, 1);
    const at::Tensor before =
        at::cat({document.narrow(3, 0, 1).narrow(4, 0, 1), at_end.narrow(3, 0, count_ - 1)}, 3);
    chunks.same = document.unsqueeze(-1) == document.unsqueeze(-2);
    chunks.reads = document == before;
    chunks.writes = document == at_end;
    chunks.carries = (before == at_end).squeeze(-1);
  }

 private:
  // [B, N, C, heads..., width].
  at::Tensor filled(const at::Tensor& x, std::vector<int64_t> heads) const {
    at::Tensor rows = x.reshape({tokens_.rows, tokens_.sequence, x.size(1)}).to(wide_of(x.scalar_type()));
    const int64_t more = count_ * length_ - tokens_.sequence;
    if (more > 0) rows = at::constant_pad_nd(rows, {0, 0, 0, more});
    if (heads.size() == 2) return rows.view({tokens_.rows, count_, length_, heads[0], x.size(1) / heads[0]});
    return rows.view({tokens_.rows, count_, length_, heads[0], heads[1], x.size(1) / (heads[0] * heads[1])});
  }
  // x [B, N, C, heads..., width].
  at::Tensor cut(const at::Tensor& x, at::ScalarType dtype) const {
    const at::Tensor rows = x.reshape({tokens_.rows, count_ * length_, -1});
    return rows.narrow(1, 0, tokens_.sequence).reshape({tokens_.rows * tokens_.sequence, -1}).to(dtype);
  }

  DeltaHeads heads_;
  TokenRows tokens_;
  int64_t length_, count_;
};

// x divided by its length, and 1 / the length.
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

// The rule's inputs of all tokens.
struct Made {
  DeltaChunks chunks;
  Unit q, k;         // chunks.q is q.x * scale
  at::Tensor open;   // [tokens, value_heads]: a + bias, wide
  at::Tensor rate;   // [value_heads]: exp(a_log), wide
  at::Tensor decay;  // [tokens, value_heads]
  at::Tensor beta;   // [tokens, value_heads]
};

double scale_of(const DeltaHeads& heads) {
  return 1 / std::sqrt(static_cast<double>(heads.key));
}

Made make(const DeltaInputs& in, const DeltaHeads& heads, const Chunking& chunking) {
  const at::ScalarType wide = wide_of(in.v.scalar_type());
  Made out;
  out.q = unit(chunking.keys(in.q));
  out.k = unit(chunking.keys(in.k));
  out.open = in.a.to(wide) + in.bias.to(wide);
  out.rate = in.a_log.to(wide).exp();
  out.decay = at::softplus(out.open) * -out.rate;
  out.beta = at::sigmoid(in.b.to(wide));
  out.chunks = {out.q.x * scale_of(heads), out.k.x, chunking.values(in.v), chunking.gates(out.decay),
                chunking.gates(out.beta)};
  chunking.add_documents(out.chunks);
  return out;
}

// Edges: q, k, v, a, b, a_log, the bias.
struct DeltaRuleNode final : model::LayerNode {
  DeltaRuleNode() : LayerNode("DeltaRuleBackward") {}
  model::Saved q, k, v, a, b, a_log, bias;
  DeltaHeads heads;
  TokenRows tokens;

  Gradients backward(Gradients&& gradients) override {
    const DeltaInputs in{q.unpack(), k.unpack(),     v.unpack(),   a.unpack(),
                         b.unpack(), a_log.unpack(), bias.unpack()};
    if (in.v.is_meta()) return like(in);
    const Chunking chunking(heads, tokens);
    const Made made = make(in, heads, chunking);
    const DeltaGradients d = delta_backward(made.chunks, chunking.values(gradients[0]));
    Gradients out(7);
    out[0] = chunking.of_keys(unit_backward(d.q * scale_of(heads), made.q), in.q.scalar_type());
    out[1] = chunking.of_keys(unit_backward(d.k, made.k), in.k.scalar_type());
    out[2] = chunking.of_values(d.v, in.v.scalar_type());
    const at::ScalarType wide = made.decay.scalar_type();
    const at::Tensor d_decay = chunking.of_gates(d.decay, wide);
    const at::Tensor d_open = d_decay * at::sigmoid(made.open) * -made.rate;
    out[3] = d_open.to(in.a.scalar_type());
    out[4] = (chunking.of_gates(d.beta, wide) * made.beta * (1 - made.beta)).to(in.b.scalar_type());
    out[5] = (d_decay * made.decay).sum(0).to(in.a_log.scalar_type());
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
  if (in.v.is_meta()) return at::empty(in.v.sizes(), in.v.options());
  const Chunking chunking(heads, tokens);
  const DeltaResult result =
      delta_forward(make(in, heads, chunking).chunks, state == nullptr ? at::Tensor() : *state);
  if (state != nullptr) *state = result.last;
  return chunking.of_values(result.out, in.v.scalar_type());
}

}  // namespace

at::Tensor delta_rule(const DeltaInputs& in, const DeltaHeads& heads, const TokenRows& tokens,
                      at::Tensor* state) {
  std::shared_ptr<DeltaRuleNode> node;
  if (torch::autograd::compute_requires_grad(in.q, in.k, in.v, in.a, in.b, in.a_log, in.bias)) {
    node = model::make_node<DeltaRuleNode>(in.q, in.k, in.v, in.a, in.b, in.a_log, in.bias);
    node->q.save(in.q);
    node->k.save(in.k);
    node->v.save(in.v);
    node->a.save(in.a);
    node->b.save(in.b);
    node->a_log.save_weight(in.a_log);
    node->bias.save_weight(in.bias);
    node->heads = heads;
    node->tokens = tokens;
  }
  at::Tensor y;
  {
    const BelowAutograd below;
    y = computed(in, heads, tokens, state);
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

}  // namespace heddle::decoder
