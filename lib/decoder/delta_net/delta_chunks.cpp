// Products of all chunks at once, and two in turn for each chunk.
#include "lib/decoder/delta_net/delta_chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

namespace heddle::decoder {
namespace {

// What both passes begin with. M: B * G * R.
struct Prepared {
  ChunkDecays decays;
  at::Tensor scores, system;  // [B, G, R, N, C, C]: of queries; of the triangular system, without the rates
  at::Tensor q, k_in, k_out;  // [M * N, C, key]: for reading the state, twice, and for writing it
};

at::Tensor of_heads(const at::Tensor& shared) {
  return shared.unsqueeze(2);
}

at::Tensor column(const at::Tensor& x) {
  return x.unsqueeze(-1);
}

// [B, G, R, N, C, d] to [M * N, C, d].
at::Tensor chunks(const at::Tensor& x) {
  return x.flatten(0, 3);
}

Prepared prepare(const DeltaChunks& in) {
  Prepared out;
  out.decays = decays_of(in.decay, in.marks);
  out.scores = of_heads(at::matmul(in.q, in.k.transpose(-1, -2))) * out.decays.pairs;
  out.system = of_heads(at::matmul(in.k, in.k.transpose(-1, -2))) * out.decays.pairs;
  out.q = chunks(of_heads(in.q) * column(out.decays.read));
  out.k_in = chunks(of_heads(in.k) * column(out.decays.read * in.beta));
  out.k_out = chunks(of_heads(in.k) * column(out.decays.write));
  return out;
}

// The solution X of (1 + A) X = right, or of its transpose, where A is the strict lower part of the system
// with the rates. right [M * N, C, ...].
at::Tensor solved(const Prepared& of, const DeltaChunks& in, const at::Tensor& right, bool transposed) {
  const at::Tensor lower = (of.system * column(in.beta)).flatten(0, 3);
  return at::linalg_solve_triangular(transposed ? lower.transpose(-1, -2) : lower, right,
                                     /*upper=*/transposed, /*left=*/true, /*unitriangular=*/true);
}

// Chunk n of [M * N, ...].
at::Tensor chunk(const at::Tensor& all, int64_t count, int64_t n) {
  return all.unflatten(0, {-1, count}).select(1, n);
}

// The states at the beginning of each chunk, and what tokens write.
struct Scanned {
  at::Tensor states;      // [M, N, key, value]
  at::Tensor new_values;  // [M, N, C, value]
  at::Tensor last;        // [M, key, value]
};

Scanned scan(const DeltaChunks& in, const Prepared& made, const at::Tensor& first) {
  const int64_t key = in.k.size(-1), value = in.v.size(-1), count = in.v.size(3), tokens = in.v.size(4);
  const int64_t heads = made.decays.carry.size(0);
  const at::Tensor both = solved(made, in, at::cat({chunks(in.v * column(in.beta)), made.k_in}, -1), false);
  const at::Tensor values = both.narrow(-1, 0, value), keys = both.narrow(-1, value, key);
  Scanned out;
  out.states = at::empty({heads, count, key, value}, in.v.options());
  out.new_values = at::empty({heads, count, tokens, value}, in.v.options());
  at::Tensor state = first.defined() ? first : at::zeros({heads, key, value}, in.v.options());
  for (int64_t n = 0; n < count; ++n) {
    out.states.select(1, n).copy_(state);
    const at::Tensor written = at::baddbmm(chunk(values, count, n), chunk(keys, count, n), state, 1, -1);
    out.new_values.select(1, n).copy_(written);
    state = at::baddbmm(state * made.decays.carry.select(1, n), chunk(made.k_out, count, n).transpose(1, 2),
                        written);
  }
  out.last = state;
  return out;
}

// The gradients of what tokens write before the triangular system, [M * N, C, value], and of the states
// after each chunk, [M * N, key, value].
struct ThroughStates {
  at::Tensor right, states;
};

ThroughStates through_states(const DeltaChunks& in, const Prepared& made, const at::Tensor& d_out) {
  const int64_t key = in.k.size(-1), value = in.v.size(-1), count = in.v.size(3);
  const at::Tensor direct = at::bmm(made.scores.flatten(0, 3).transpose(1, 2), d_out);
  const at::Tensor both = solved(made, in, at::cat({direct, made.k_out}, -1), true);
  const at::Tensor d_right = both.narrow(-1, 0, value), keys = both.narrow(-1, value, key);
  const at::Tensor read = at::bmm(made.q.transpose(1, 2), d_out);
  const int64_t heads = made.decays.carry.size(0);
  ThroughStates out{at::empty({heads, count, in.v.size(4), value}, d_out.options()),
                    at::empty({heads, count, key, value}, d_out.options())};
  at::Tensor state = at::zeros({heads, key, value}, d_out.options());
  for (int64_t n = count; n-- > 0;) {
    out.states.select(1, n).copy_(state);
    const at::Tensor right = at::baddbmm(chunk(d_right, count, n), chunk(keys, count, n), state);
    out.right.select(1, n).copy_(right);
    state = at::baddbmm(state * made.decays.carry.select(1, n) + chunk(read, count, n),
                        chunk(made.k_in, count, n).transpose(1, 2), right, 1, -1);
  }
  return {out.right.flatten(0, 1), out.states.flatten(0, 1)};
}

// Gradients of the products between tokens of a chunk and of those with the states.
struct OfProducts {
  at::Tensor scores, system;  // [B, G, R, N, C, C]; system: below the diagonal
  at::Tensor q, k_in, k_out;  // [B, G, R, N, C, key]
};

OfProducts of_products(const DeltaChunks& in, const Scanned& from, const ThroughStates& d,
                       const at::Tensor& d_out) {
  const at::Tensor states = from.states.flatten(0, 1).transpose(1, 2);
  const at::Tensor values = from.new_values.flatten(0, 1), values_t = values.transpose(1, 2);
  const at::IntArrayRef sizes = in.v.sizes();
  const auto heads = [&](const at::Tensor& x) { return x.unflatten(0, sizes.slice(0, 4)); };
  return {heads(at::bmm(d_out, values_t)), heads(at::bmm(d.right, values_t).neg_().tril_(-1)),
          heads(at::bmm(d_out, states)), heads(at::bmm(d.right, states).neg_()),
          heads(at::bmm(values, d.states.transpose(1, 2)))};
}

at::Tensor of_decay(const DeltaChunks& in, const Scanned& from, const Prepared& made, const ThroughStates& d,
                    const OfProducts& of) {
  const at::Tensor pairs = of.scores * made.scores + of.system * (made.system * column(in.beta));
  const auto along = [&](const at::Tensor& gradient, const at::Tensor& x) {
    return (gradient * x.view_as(gradient)).sum(-1);
  };
  return gradient_of_decays(
      {pairs, along(of.q, made.q) + along(of.k_in, made.k_in), along(of.k_out, made.k_out),
       (d.states.view_as(from.states) * from.states).sum({2, 3}) * made.decays.carry.flatten(1)});
}

}  // namespace

DeltaResult delta_forward(const DeltaChunks& in, const at::Tensor& first) {
  const Prepared made = prepare(in);
  const Scanned all = scan(in, made, first);
  const at::Tensor read = at::bmm(made.q, all.states.flatten(0, 1));
  const at::Tensor out = at::baddbmm(read, made.scores.flatten(0, 3), all.new_values.flatten(0, 1));
  return {out.view(in.v.sizes()), all.last};
}

DeltaGradients delta_backward(const DeltaChunks& in, const at::Tensor& given) {
  const Prepared made = prepare(in);
  const Scanned from = scan(in, made, {});
  const at::Tensor d_out = chunks(given);
  const ThroughStates d = through_states(in, made, d_out);
  const OfProducts of = of_products(in, from, d, d_out);
  const at::Tensor right = d.right.view(in.v.sizes());
  DeltaGradients out;
  out.decay = of_decay(in, from, made, d, of);
  out.v = right * column(in.beta);
  out.beta = (of.system * made.system).sum(-1) + (right * in.v).sum(-1) +
             (of.k_in * of_heads(in.k)).sum(-1) * made.decays.read;
  const at::Tensor scores = (of.scores * made.decays.pairs).sum(2);
  at::Tensor keys = (of.system * made.decays.pairs * column(in.beta)).sum(2);
  keys = keys + keys.transpose(-1, -2);
  out.q = at::matmul(scores, in.k) + (of.q * column(made.decays.read)).sum(2);
  out.k = at::matmul(scores.transpose(-1, -2), in.q) + at::matmul(keys, in.k) +
          (of.k_in * column(made.decays.read * in.beta)).sum(2) +
          (of.k_out * column(made.decays.write)).sum(2);
  return out;
}

}  // namespace heddle::decoder
