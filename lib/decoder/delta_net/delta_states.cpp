// Products of all chunks at once, and two sequential products per chunk.
#include "lib/decoder/delta_net/delta_states.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/zeros.h>

namespace heddle::decoder {
namespace {

// Reshapes [B, G, R, N, C, d] to [M * N, C, d].
at::Tensor chunks(const at::Tensor& x) {
  return x.flatten(0, 3);
}

// Returns the solution X of (1 + A) X = right, or of the transposed system, where A is the strictly lower
// part of the system times the rates. right [M * N, C, ...].
at::Tensor solved(const DeltaProducts& of, const DeltaChunks& in, const at::Tensor& right, bool transposed) {
  const at::Tensor lower = (of.system * in.beta.unsqueeze(-1)).flatten(0, 3);
  return at::linalg_solve_triangular(transposed ? lower.transpose(-1, -2) : lower, right,
                                     /*upper=*/transposed, /*left=*/true, /*unitriangular=*/true);
}

// Returns chunk n of [M * N, ...].
at::Tensor chunk(const at::Tensor& all, int64_t count, int64_t n) {
  return all.unflatten(0, {-1, count}).select(1, n);
}

// States at the start of each chunk, and the values that tokens write.
struct Scanned {
  at::Tensor states;      // [M, N, key, value]
  at::Tensor new_values;  // [M, N, C, value]
  at::Tensor last;        // [M, key, value]
};

Scanned scan(const DeltaChunks& in, const DeltaProducts& made, const at::Tensor& first) {
  const int64_t key = in.k.size(-1), value = in.v.size(-1), count = in.v.size(3), tokens = in.v.size(4);
  const int64_t heads = made.carry.size(0);
  const at::Tensor both =
      solved(made, in, at::cat({chunks(in.v * in.beta.unsqueeze(-1)), made.k_in}, -1), false);
  const at::Tensor values = both.narrow(-1, 0, value), keys = both.narrow(-1, value, key);
  Scanned out;
  out.states = at::empty({heads, count, key, value}, in.v.options());
  out.new_values = at::empty({heads, count, tokens, value}, in.v.options());
  at::Tensor state = first.defined() ? first : at::zeros({heads, key, value}, in.v.options());
  for (int64_t n = 0; n < count; ++n) {
    out.states.select(1, n).copy_(state);
    const at::Tensor written = at::baddbmm(chunk(values, count, n), chunk(keys, count, n), state, 1, -1);
    out.new_values.select(1, n).copy_(written);
    state =
        at::baddbmm(state * made.carry.select(1, n), chunk(made.k_out, count, n).transpose(1, 2), written);
  }
  out.last = state;
  return out;
}

// Gradients of the values that tokens write, before the triangular system, [M * N, C, value], and of the
// states after each chunk, [M, N, key, value].
struct ThroughStates {
  at::Tensor right, states;
};

ThroughStates through_states(const DeltaChunks& in, const DeltaProducts& made, const at::Tensor& d_out) {
  const int64_t key = in.k.size(-1), value = in.v.size(-1), count = in.v.size(3);
  const at::Tensor direct = at::bmm(made.scores.flatten(0, 3).transpose(1, 2), d_out);
  const at::Tensor both = solved(made, in, at::cat({direct, made.k_out}, -1), true);
  const at::Tensor d_right = both.narrow(-1, 0, value), keys = both.narrow(-1, value, key);
  const at::Tensor read = at::bmm(made.q.transpose(1, 2), d_out);
  const int64_t heads = made.carry.size(0);
  ThroughStates out{at::empty({heads, count, in.v.size(4), value}, d_out.options()),
                    at::empty({heads, count, key, value}, d_out.options())};
  at::Tensor state = at::zeros({heads, key, value}, d_out.options());
  for (int64_t n = count; n-- > 0;) {
    out.states.select(1, n).copy_(state);
    const at::Tensor right = at::baddbmm(chunk(d_right, count, n), chunk(keys, count, n), state);
    out.right.select(1, n).copy_(right);
    state = at::baddbmm(state * made.carry.select(1, n) + chunk(read, count, n),
                        chunk(made.k_in, count, n).transpose(1, 2), right, 1, -1);
  }
  out.right = out.right.flatten(0, 1);
  return out;
}

}  // namespace

DeltaResult delta_result(const DeltaChunks& in, const DeltaProducts& made, const at::Tensor& first) {
  const Scanned all = scan(in, made, first);
  const at::Tensor read = at::bmm(made.q, all.states.flatten(0, 1));
  const at::Tensor out = at::baddbmm(read, made.scores.flatten(0, 3), all.new_values.flatten(0, 1));
  return {out.view(in.v.sizes()), all.last};
}

DeltaProductGradients delta_product_gradients(const DeltaChunks& in, const DeltaProducts& made,
                                              const at::Tensor& given) {
  const Scanned all = scan(in, made, {});
  const at::Tensor d_out = chunks(given);
  const ThroughStates d = through_states(in, made, d_out);
  const at::Tensor states = all.states.flatten(0, 1).transpose(1, 2);
  const at::Tensor values = all.new_values.flatten(0, 1), values_t = values.transpose(1, 2);
  const auto heads = [&](const at::Tensor& x) { return x.unflatten(0, in.v.sizes().slice(0, 4)); };
  return {heads(at::bmm(d_out, values_t)),
          heads(at::bmm(d.right, values_t).neg_().tril_(-1)),
          heads(at::bmm(d_out, states)),
          heads(at::bmm(d.right, states).neg_()),
          heads(at::bmm(values, d.states.flatten(0, 1).transpose(1, 2))),
          heads(d.right),
          (d.states * all.states).sum(-1)};
}

}  // namespace heddle::decoder
