// Delta rule with a decay per token, or per key channel.
#include "lib/decoder/delta_net/delta_chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>

#include "lib/decoder/delta_net/channel_chunks.h"
#include "lib/decoder/delta_net/delta_states.h"

namespace heddle::decoder {
namespace {

at::Tensor of_heads(const at::Tensor& shared) {
  return shared.unsqueeze(2);
}

at::Tensor column(const at::Tensor& x) {
  return x.unsqueeze(-1);
}

DeltaProducts products_of(const DeltaChunks& in, const ChunkDecays& decays) {
  const at::Tensor q = of_heads(in.q), k = of_heads(in.k);
  return {of_heads(at::matmul(in.q, in.k.transpose(-1, -2))) * decays.pairs,
          of_heads(at::matmul(in.k, in.k.transpose(-1, -2))) * decays.pairs,
          (q * column(decays.read)).flatten(0, 3),
          (k * column(decays.read * in.beta)).flatten(0, 3),
          (k * column(decays.write)).flatten(0, 3),
          decays.carry};
}

at::Tensor of_decay(const DeltaChunks& in, const DeltaProducts& made, const DeltaProductGradients& of) {
  const at::Tensor pairs = of.scores * made.scores + of.system * (made.system * column(in.beta));
  const auto along = [&](const at::Tensor& gradient, const at::Tensor& x) {
    return (gradient * x.view_as(gradient)).sum(-1);
  };
  return gradient_of_decays({pairs, along(of.q, made.q) + along(of.k_in, made.k_in),
                             along(of.k_out, made.k_out), of.carry.sum(-1) * made.carry.flatten(1)});
}

DeltaGradients token_backward(const DeltaChunks& in, const at::Tensor& d_out) {
  const ChunkDecays decays = decays_of(in.decay, in.marks);
  const DeltaProducts made = products_of(in, decays);
  const DeltaProductGradients of = delta_product_gradients(in, made, d_out);
  DeltaGradients out;
  out.decay = of_decay(in, made, of);
  out.v = of.right * column(in.beta);
  out.beta = (of.system * made.system).sum(-1) + (of.right * in.v).sum(-1) +
             (of.k_in * of_heads(in.k)).sum(-1) * decays.read;
  const at::Tensor scores = (of.scores * decays.pairs).sum(2);
  at::Tensor keys = (of.system * decays.pairs * column(in.beta)).sum(2);
  keys = keys + keys.transpose(-1, -2);
  out.q = at::matmul(scores, in.k) + (of.q * column(decays.read)).sum(2);
  out.k = at::matmul(scores.transpose(-1, -2), in.q) + at::matmul(keys, in.k) +
          (of.k_in * column(decays.read * in.beta)).sum(2) + (of.k_out * column(decays.write)).sum(2);
  return out;
}

}  // namespace

DeltaResult delta_forward(const DeltaChunks& in, const at::Tensor& first) {
  if (in.decay.dim() > in.beta.dim()) return channel_forward(in, first);
  return delta_result(in, products_of(in, decays_of(in.decay, in.marks)), first);
}

DeltaGradients delta_backward(const DeltaChunks& in, const at::Tensor& d_out) {
  return in.decay.dim() > in.beta.dim() ? channel_backward(in, d_out) : token_backward(in, d_out);
}

}  // namespace heddle::decoder
