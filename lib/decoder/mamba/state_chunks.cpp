// Products of all chunks at once, and one sequential sum per chunk.
#include "lib/decoder/mamba/state_chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>

namespace heddle::decoder {
namespace {

// Common start of forward and backward. M: B * G * R.
struct StatePrepared {
  ChunkDecays decays;
  at::Tensor scores;       // [B, G, R, N, C, C]
  at::Tensor values;       // [M * N, C, width]: steps times v
  at::Tensor c_in, b_out;  // [M * N, C, state]: for reading the state, and for writing it
};

at::Tensor for_heads(const at::Tensor& shared) {
  return shared.unsqueeze(2);
}

at::Tensor as_column(const at::Tensor& x) {
  return x.unsqueeze(-1);
}

StatePrepared prepare_states(const StateChunks& in) {
  StatePrepared out;
  out.decays = decays_of(in.decay, in.marks);
  out.scores = for_heads(at::matmul(in.c, in.b.transpose(-1, -2))) * out.decays.pairs;
  out.values = (in.v * as_column(in.step)).flatten(0, 3);
  out.c_in = (for_heads(in.c) * as_column(out.decays.read)).flatten(0, 3);
  out.b_out = (for_heads(in.b) * as_column(out.decays.write)).flatten(0, 3);
  return out;
}

// States before each chunk, [M * N, state, width], and after the last chunk, [M, state, width].
struct StatesScanned {
  at::Tensor states, last;
};

StatesScanned scan_states(const StatePrepared& made, const at::Tensor& first) {
  const at::Tensor& carry = made.decays.carry;
  const at::Tensor written =
      at::bmm(made.b_out.transpose(1, 2), made.values).unflatten(0, {carry.size(0), carry.size(1)});
  const at::Tensor states = at::empty_like(written);
  at::Tensor state = first.defined() ? first : at::zeros_like(written.select(1, 0));
  for (int64_t n = 0; n < carry.size(1); ++n) {
    states.select(1, n).copy_(state);
    state = at::addcmul(written.select(1, n), state, carry.select(1, n));
  }
  return {states.flatten(0, 1), state};
}

// Returns the gradients of the states after each chunk, [M * N, state, width].
at::Tensor through_later(const StatePrepared& made, const at::Tensor& d_out) {
  const at::Tensor& carry = made.decays.carry;
  const at::Tensor read =
      at::bmm(made.c_in.transpose(1, 2), d_out).unflatten(0, {carry.size(0), carry.size(1)});
  const at::Tensor states = at::empty_like(read);
  at::Tensor state = at::zeros_like(read.select(1, 0));
  for (int64_t n = carry.size(1); n-- > 0;) {
    states.select(1, n).copy_(state);
    state = at::addcmul(read.select(1, n), state, carry.select(1, n));
  }
  return states.flatten(0, 1);
}

}  // namespace

StateResult state_forward(const StateChunks& in, const at::Tensor& first) {
  const StatePrepared made = prepare_states(in);
  const StatesScanned all = scan_states(made, first);
  const at::Tensor read = at::bmm(made.c_in, all.states);
  return {at::baddbmm(read, made.scores.flatten(0, 3), made.values).view(in.v.sizes()), all.last};
}

StateGradients state_backward(const StateChunks& in, const at::Tensor& given) {
  const StatePrepared made = prepare_states(in);
  const at::Tensor states = scan_states(made, {}).states, d_out = given.flatten(0, 3);
  const at::Tensor d_states = through_later(made, d_out);
  const auto heads = [&](const at::Tensor& x) { return x.unflatten(0, in.v.sizes().slice(0, 4)); };
  const auto along = [&](const at::Tensor& gradient, const at::Tensor& x) {
    return (gradient * x.view_as(gradient)).sum(-1);
  };
  const at::Tensor scores = heads(at::bmm(d_out, made.values.transpose(1, 2)));
  const at::Tensor c_in = heads(at::bmm(d_out, states.transpose(1, 2)));
  const at::Tensor b_out = heads(at::bmm(made.values, d_states.transpose(1, 2)));
  const at::Tensor values =
      heads(at::baddbmm(at::bmm(made.b_out, d_states), made.scores.flatten(0, 3).transpose(1, 2), d_out));
  const at::Tensor carry = made.decays.carry.flatten(1);
  const at::Tensor products = (scores * made.decays.pairs).sum(2);
  StateGradients out;
  out.decay = gradient_of_decays({scores * made.scores, along(c_in, made.c_in), along(b_out, made.b_out),
                                  (d_states * states).sum({1, 2}).view_as(carry) * carry});
  out.v = values * as_column(in.step);
  out.step = (values * in.v).sum(-1);
  out.c = at::matmul(products, in.b) + (c_in * as_column(made.decays.read)).sum(2);
  out.b = at::matmul(products.transpose(-1, -2), in.c) + (b_out * as_column(made.decays.write)).sum(2);
  return out;
}

}  // namespace heddle::decoder
