// Sums of log decays within chunks, and their gradients.
#include "lib/decoder/recurrence/chunk_decays.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/ones.h>

#include <limits>

namespace heddle::decoder {
namespace {

at::Tensor masked(const at::Tensor& decay, const at::Tensor& mask) {
  return mask.defined() ? decay * mask : decay;
}

at::Tensor pair_decays(const at::Tensor& sums, const at::Tensor& same) {
  const int64_t tokens = sums.size(-1);
  at::Tensor hidden = at::ones({tokens, tokens}, sums.options().dtype(at::kBool)).triu(1);
  if (same.defined()) hidden = hidden.logical_or(same.logical_not());
  const double none = -std::numeric_limits<double>::infinity();
  return (sums.unsqueeze(-1) - sums.unsqueeze(-2)).masked_fill_(hidden, none).exp_();
}

// Exclusive sums over earlier positions of the last dim, and inclusive sums over later ones.
at::Tensor sums_before(const at::Tensor& x) {
  return at::constant_pad_nd(at::cumsum(x.narrow(-1, 0, x.size(-1) - 1), -1), {1, 0});
}

at::Tensor sums_from(const at::Tensor& x) {
  return at::cumsum(x.flip(-1), -1).flip(-1);
}

}  // namespace

ChunkDecays decays_of(const at::Tensor& decay, const ChunkMarks& marks) {
  ChunkDecays out;
  const at::Tensor sums = at::cumsum(decay, -1);
  out.pairs = pair_decays(sums, marks.same);
  const at::Tensor whole = sums.narrow(-1, sums.size(-1) - 1, 1);
  out.read = masked(sums.exp(), marks.reads);
  out.write = masked((whole - sums).exp_(), marks.writes);
  const at::Tensor carry = masked(whole.squeeze(-1).exp(), marks.carries);
  out.carry = carry.reshape({-1, carry.size(-1), 1, 1});
  return out;
}

at::Tensor gradient_of_decays(const DecayGradients& gradients) {
  const at::Tensor carry = gradients.carry.view_as(gradients.read.select(-1, 0)).unsqueeze(-1);
  return sums_before(gradients.pairs).tril().sum(-2) + sums_from(gradients.read) +
         sums_before(gradients.write) + carry;
}

}  // namespace heddle::decoder
