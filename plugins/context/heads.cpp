// Exchange of tokens for heads: one all-to-all in each direction, reversed in the backward.
#include "heads.h"

#include <ATen/ops/empty_like.h>

#include <vector>

#include "heddle/model/autograd_node.h"

namespace heddle::context {
namespace {

// `heads` describes this rank's tokens.
using Move = at::Tensor (*)(const at::Tensor& x, const model::Heads& heads, Communicator& ranks);

// All-to-all of in [ranks, ...]: in[r] goes to rank r, and out[r] comes from rank r.
at::Tensor swapped(const at::Tensor& in, Communicator& ranks) {
  at::Tensor out = at::empty_like(in);
  const std::vector<int64_t> one_each(static_cast<size_t>(ranks.size()), 1);
  ranks.all_to_all(out, in, one_each, one_each)->wait();
  return out;
}

at::Tensor deal_heads(const at::Tensor& x, const model::Heads& heads, Communicator& ranks) {
  const int64_t width = x.size(1) / ranks.size();
  const at::Tensor parts =
      swapped(x.view({x.size(0), ranks.size(), width}).transpose(0, 1).contiguous(), ranks);
  return parts.view({ranks.size(), heads.batch, heads.sequence, width}).transpose(0, 1).reshape({-1, width});
}

at::Tensor deal_tokens(const at::Tensor& x, const model::Heads& heads, Communicator& ranks) {
  const int64_t width = x.size(1);
  const at::Tensor parts =
      swapped(x.view({heads.batch, ranks.size(), heads.sequence, width}).transpose(0, 1).contiguous(), ranks);
  return parts.view({ranks.size(), heads.batch * heads.sequence, width})
      .transpose(0, 1)
      .reshape({heads.batch * heads.sequence, -1});
}

struct ContextHeadsNode final : model::LayerNode {
  ContextHeadsNode() : LayerNode("ContextHeadsBackward") {}
  Move back = nullptr;
  model::Heads heads;
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    return {back(gradients[0].contiguous(), heads, *ranks)};
  }
};

at::Tensor moved(const at::Tensor& x, const model::Heads& heads, Communicator& ranks, Move there, Move back) {
  return model::forward_with<ContextHeadsNode>(
      [&](ContextHeadsNode& node) {
        node.back = back;
        node.heads = heads;
        node.ranks = &ranks;
      },
      [&] {
        return model::once(model::Operator::collective, [&] { return there(x.contiguous(), heads, ranks); });
      },
      x);
}

}  // namespace

at::Tensor to_own_heads(const at::Tensor& x, const model::Heads& heads, Communicator& ranks) {
  return moved(x, heads, ranks, deal_heads, deal_tokens);
}

at::Tensor to_own_tokens(const at::Tensor& x, const model::Heads& heads, Communicator& ranks) {
  return moved(x, heads, ranks, deal_tokens, deal_heads);
}

}  // namespace heddle::context
