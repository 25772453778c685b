// Cumulative sums of log decays over tokens, and products of pairs of half chunks.
#include "lib/decoder/recurrence/channel_decays.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <vector>

namespace heddle::decoder {
namespace {

// Sums over the tokens, dim -2: of a token and the earlier ones, of the later ones, or of the earlier ones.
at::Tensor through(const at::Tensor& x) {
  return at::cumsum(x, -2);
}
at::Tensor from(const at::Tensor& x) {
  return at::cumsum(x.flip(-2), -2).flip(-2);
}
at::Tensor before(const at::Tensor& x) {
  return at::constant_pad_nd(through(x.narrow(-2, 0, x.size(-2) - 1)), {0, 0, 1, 0});
}
at::Tensor behind(const at::Tensor& x) {
  return at::constant_pad_nd(from(x.narrow(-2, 1, x.size(-2) - 1)), {0, 0, 0, 1});
}

at::Tensor masked_channels(const at::Tensor& decay, const at::Tensor& mask) {
  return mask.defined() ? decay * mask.unsqueeze(-1) : decay;
}

// Neighbouring halves of `half` tokens each.
class Halves {
 public:
  explicit Halves(int64_t half) : half_(half) {}
  // Returns the first or the second halves of [.., C, key], as a view [.., C / (2 half), half, key].
  at::Tensor first(const at::Tensor& x) const { return x.unflatten(-2, {-1, 2, half_}).select(-3, 0); }
  at::Tensor second(const at::Tensor& x) const { return x.unflatten(-2, {-1, 2, half_}).select(-3, 1); }
  // Returns the rows of second halves and the columns of their first halves of [.., C, C], as a view [.., C /
  // (2 half), half, half].
  at::Tensor pairs(const at::Tensor& x) const {
    const at::Tensor columns = x.unflatten(-1, {-1, 2, half_}).select(-2, 0);
    return columns.unflatten(-3, {-1, 2, half_}).select(-4, 1).diagonal(0, -4, -2).movedim(-1, -3);
  }

 private:
  int64_t half_;
};

// Values of one size of halves that both passes use: decays up to and from the border, and the factors.
struct Level {
  at::Tensor to_border, from_border;  // exp of sums over first and second halves
  at::Tensor q, k, right;             // q and k of second halves, right of first halves
  Level(const Halves& halves, const at::Tensor& all_q, const at::Tensor& all_k, const at::Tensor& decay)
      : to_border(behind(halves.first(decay)).exp_()),
        from_border(through(halves.second(decay)).exp_()),
        q(halves.second(all_q) * from_border),
        k(halves.second(all_k) * from_border),
        right(halves.first(all_k) * to_border) {}
};

}  // namespace

ChannelDecays channel_decays_of(const at::Tensor& decay, const ChunkMarks& marks) {
  const at::Tensor carry = masked_channels(decay.sum(-2).exp_(), marks.carries);
  return {masked_channels(through(decay).exp_(), marks.reads),
          masked_channels(behind(decay).exp_(), marks.writes),
          carry.reshape({-1, carry.size(3), carry.size(4), 1})};
}

at::Tensor gradient_of_channel_decays(const ChannelDecayGradients& gradients) {
  return from(gradients.read) + before(gradients.write) +
         gradients.carry.view_as(gradients.read.select(-2, 0)).unsqueeze(-2);
}

ChannelPairs channel_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& decay) {
  std::vector<int64_t> shape = decay.sizes().vec();
  const int64_t tokens = shape.back() = shape[shape.size() - 2];
  ChannelPairs out{at::zeros(shape, decay.options()), at::zeros(shape, decay.options())};
  out.scores.diagonal(0, -2, -1).copy_((q * k).sum(-1));
  for (int64_t half = 1; half < tokens; half *= 2) {
    const Halves halves(half);
    const Level level(halves, q, k, decay);
    const at::Tensor right = level.right.transpose(-1, -2);
    halves.pairs(out.scores).copy_(at::matmul(level.q, right));
    halves.pairs(out.system).copy_(at::matmul(level.k, right));
  }
  return out;
}

ChannelPairGradients channel_pairs_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& decay,
                                            const ChannelPairs& d) {
  const at::Tensor alone = d.scores.diagonal(0, -2, -1).unsqueeze(-1);
  ChannelPairGradients out{alone * k, alone * q, at::zeros_like(decay)};
  for (int64_t half = 1; half < decay.size(-2); half *= 2) {
    const Halves halves(half);
    const Level level(halves, q, k, decay);
    const at::Tensor d_scores = halves.pairs(d.scores), d_system = halves.pairs(d.system);
    const at::Tensor d_q = at::matmul(d_scores, level.right), d_k = at::matmul(d_system, level.right);
    const at::Tensor d_right =
        at::matmul(d_scores.transpose(-1, -2), level.q) + at::matmul(d_system.transpose(-1, -2), level.k);
    halves.second(out.q).add_(d_q * level.from_border);
    halves.second(out.k).add_(d_k * level.from_border);
    halves.first(out.k).add_(d_right * level.to_border);
    halves.second(out.decay).add_(from(d_q * level.q + d_k * level.k));
    halves.first(out.decay).add_(before(d_right * level.right));
  }
  return out;
}

}  // namespace heddle::decoder
