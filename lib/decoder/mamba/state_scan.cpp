// Converts rows of tokens to chunks of heads and back, and computes the steps.
#include "lib/decoder/mamba/state_scan.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "heddle/model/autograd_node.h"
#include "lib/decoder/mamba/state_chunks.h"
#include "lib/decoder/recurrence/recurrence_cost.h"
#include "lib/decoder/recurrence/row_chunks.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::accumulation_dtype;
using model::BelowAutograd;
using model::Gradients;

RowChunks scan_chunks_of(const ScanHeads& heads, const TokenRows& tokens) {
  return {heads.groups, heads.heads / heads.groups, tokens, kScanChunk};
}

// Inputs of the rule for all tokens, in the accumulation dtype.
struct ScanMade {
  StateChunks chunks;
  at::Tensor open;  // [tokens, heads]: dt + bias
  at::Tensor step;  // [tokens, heads]: clamped softplus of `open`
  at::Tensor rate;  // [heads]: -exp(a_log)
};

ScanMade make_scan(const ScanInputs& in, const ScanHeads& heads, const RowChunks& chunking) {
  const at::ScalarType wide = accumulation_dtype(in.x.scalar_type());
  ScanMade out;
  out.open = in.dt.to(wide) + in.bias.to(wide);
  constexpr double kMost = std::numeric_limits<float>::max();
  out.step = at::clamp(at::softplus(out.open), heads.shortest, std::min(heads.longest, kMost));
  out.rate = -in.a_log.to(wide).exp();
  out.chunks = {chunking.shared(in.c), chunking.shared(in.b), chunking.of_heads(in.x),
                chunking.gates(out.step * out.rate), chunking.gates(out.step)};
  out.chunks.marks = chunking.marks(in.x.options());
  return out;
}

// Returns x [tokens, heads * width] by heads, in the accumulation dtype.
at::Tensor scan_by_heads(const at::Tensor& x, const ScanHeads& heads) {
  return x.reshape({-1, heads.heads, heads.width}).to(accumulation_dtype(x.scalar_type()));
}

void record_scan(const char* name, const ScanInputs& in, const ScanHeads& heads, bool backward) {
  record_recurrence(name, {&in.x, &in.b, &in.c, &in.dt}, in.x,
                    3 * static_cast<double>(heads.heads * heads.width * heads.state), backward);
}

// Edges: x, b, c, dt, a_log, bias, direct.
struct StateScanNode final : model::LayerNode {
  StateScanNode() : LayerNode("StateScanBackward") {}
  model::Saved x, b, c, dt, a_log, bias, direct;
  ScanHeads heads;
  TokenRows tokens;

  Gradients backward(Gradients&& gradients) override {
    const ScanInputs in{x.unpack(),     b.unpack(),    c.unpack(),     dt.unpack(),
                        a_log.unpack(), bias.unpack(), direct.unpack()};
    if (in.x.is_meta()) {
      record_scan("heddle::state_scan_backward", in, heads, /*backward=*/true);
      return like(in);
    }
    const RowChunks chunking = scan_chunks_of(heads, tokens);
    const ScanMade made = make_scan(in, heads, chunking);
    const StateGradients d = state_backward(made.chunks, chunking.of_heads(gradients[0]));
    const at::ScalarType wide = made.step.scalar_type(), dtype = in.x.scalar_type();
    const at::Tensor dy = scan_by_heads(gradients[0], heads);
    const at::Tensor d_decay = chunking.rows_of_gates(d.decay, wide);
    Gradients out(7);
    out[0] =
        (chunking.rows_of_heads(d.v, wide) + (dy * in.direct.to(wide).unsqueeze(-1)).flatten(1)).to(dtype);
    out[1] = chunking.rows_of_shared(d.b, in.b.scalar_type());
    out[2] = chunking.rows_of_shared(d.c, in.c.scalar_type());
    const at::Tensor d_open = of_open(made, chunking.rows_of_gates(d.step, wide) + d_decay * made.rate);
    out[3] = d_open.to(in.dt.scalar_type());
    out[4] = ((d_decay * made.step).sum(0) * made.rate).to(in.a_log.scalar_type());
    out[5] = d_open.sum(0).to(in.bias.scalar_type());
    out[6] = (dy * scan_by_heads(in.x, heads)).sum(at::IntArrayRef{0, 2}).to(in.direct.scalar_type());
    return out;
  }
  at::Tensor of_open(const ScanMade& made, const at::Tensor& d_step) const {
    const at::Tensor step = at::softplus(made.open);
    const at::Tensor inside = (step >= heads.shortest).logical_and_(step <= heads.longest);
    return d_step * at::sigmoid(made.open) * inside;
  }
  static Gradients like(const ScanInputs& in) {
    Gradients out;
    for (const at::Tensor* one : {&in.x, &in.b, &in.c, &in.dt, &in.a_log, &in.bias, &in.direct})
      out.push_back(at::empty_like(*one));
    return out;
  }
  void release_variables() override {
    for (model::Saved* saved : {&x, &b, &c, &dt, &a_log, &bias, &direct}) saved->reset();
  }
};

at::Tensor scanned(const ScanInputs& in, const ScanHeads& heads, const TokenRows& tokens, at::Tensor* state) {
  if (in.x.is_meta()) {
    record_scan("heddle::state_scan", in, heads, /*backward=*/false);
    return at::empty(in.x.sizes(), in.x.options());
  }
  const RowChunks chunking = scan_chunks_of(heads, tokens);
  const ScanMade made = make_scan(in, heads, chunking);
  const StateResult result = state_forward(made.chunks, state == nullptr ? at::Tensor() : *state);
  if (state != nullptr) *state = result.last;
  const at::ScalarType wide = made.step.scalar_type();
  const at::Tensor direct = (scan_by_heads(in.x, heads) * in.direct.to(wide).unsqueeze(-1)).flatten(1);
  return (chunking.rows_of_heads(result.out, wide) + direct).to(in.x.scalar_type());
}

}  // namespace

at::Tensor state_scan(const ScanInputs& in, const ScanHeads& heads, const TokenRows& tokens,
                      at::Tensor* state) {
  return model::forward_with<StateScanNode>(
      [&](StateScanNode& node) {
        node.x.save(in.x);
        node.b.save(in.b);
        node.c.save(in.c);
        node.dt.save(in.dt);
        node.a_log.save_weight(in.a_log);
        node.bias.save_weight(in.bias);
        node.direct.save_weight(in.direct);
        node.heads = heads;
        node.tokens = tokens;
      },
      [&] { return scanned(in, heads, tokens, state); }, in.x, in.b, in.c, in.dt, in.a_log, in.bias,
      in.direct);
}

}  // namespace heddle::decoder
