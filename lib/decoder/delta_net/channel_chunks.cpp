// Delta rule with per-channel decays: products with decays, and the gradients of the inputs.
#include "lib/decoder/delta_net/channel_chunks.h"

#include <ATen/TensorOperators.h>

#include "lib/decoder/delta_net/delta_states.h"
#include "lib/decoder/recurrence/channel_decays.h"

namespace heddle::decoder {
namespace {

struct ChannelPrepared {
  at::Tensor q, k, beta;  // [B, G, 1, N, C, key], and [B, G, R, N, C, 1]
  ChannelDecays decays;
  DeltaProducts products;
};

at::Tensor in_document(const at::Tensor& pairs, const ChunkMarks& marks) {
  return marks.same.defined() ? pairs * marks.same : pairs;
}

ChannelPrepared prepare_channels(const DeltaChunks& in) {
  ChannelPrepared out{
      in.q.unsqueeze(2), in.k.unsqueeze(2), in.beta.unsqueeze(-1), channel_decays_of(in.decay, in.marks), {}};
  const ChannelPairs pairs = channel_pairs(out.q, out.k, in.decay);
  out.products = {
      in_document(pairs.scores, in.marks),      in_document(pairs.system, in.marks),
      (out.q * out.decays.read).flatten(0, 3),  (out.k * out.decays.read * out.beta).flatten(0, 3),
      (out.k * out.decays.write).flatten(0, 3), out.decays.carry};
  return out;
}

}  // namespace

DeltaResult channel_forward(const DeltaChunks& in, const at::Tensor& first) {
  return delta_result(in, prepare_channels(in).products, first);
}

DeltaGradients channel_backward(const DeltaChunks& in, const at::Tensor& d_out) {
  const ChannelPrepared made = prepare_channels(in);
  const DeltaProducts& products = made.products;
  const DeltaProductGradients of = delta_product_gradients(in, products, d_out);
  const ChannelPairGradients pairs = channel_pairs_backward(
      made.q, made.k, in.decay,
      {in_document(of.scores, in.marks), in_document(of.system * made.beta, in.marks)});
  const auto along = [&](const at::Tensor& gradient, const at::Tensor& x) {
    return gradient * x.view_as(gradient);
  };
  DeltaGradients out;
  out.decay = pairs.decay + gradient_of_channel_decays(
                                {along(of.q, products.q) + along(of.k_in, products.k_in),
                                 along(of.k_out, products.k_out), of.carry * products.carry.squeeze(-1)});
  out.v = of.right * made.beta;
  out.beta = (of.system * products.system).sum(-1) + (of.right * in.v).sum(-1) +
             (of.k_in * made.k * made.decays.read).sum(-1);
  out.q = (pairs.q + of.q * made.decays.read).sum(2);
  out.k = (pairs.k + of.k_in * made.decays.read * made.beta + of.k_out * made.decays.write).sum(2);
  return out;
}

}  // namespace heddle::decoder
