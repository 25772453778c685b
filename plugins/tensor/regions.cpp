// Regions with one communication in the forward and one in the backward.
#include "regions.h"

#include <ATen/ops/alias.h>

#include <utility>

#include "collectives.h"
#include "heddle/model/autograd_node.h"

namespace heddle::tensor {
namespace {

// Communication of a region. `total` is the size of the whole dim.
using Move = at::Tensor (*)(at::Tensor tensor, int64_t total, Communicator& ranks);

at::Tensor keep(at::Tensor tensor, int64_t, Communicator&) {
  return at::alias(tensor);
}
at::Tensor pass(at::Tensor tensor, int64_t, Communicator&) {
  return tensor;
}
at::Tensor add_up(at::Tensor tensor, int64_t, Communicator& ranks) {
  at::Tensor own = exclusive(std::move(tensor));
  return sum_all(at::alias(own), ranks);
}
at::Tensor to_all_rows(at::Tensor tensor, int64_t total, Communicator& ranks) {
  return all_rows(tensor, total, ranks);
}
at::Tensor to_sum_of_rows(at::Tensor tensor, int64_t, Communicator& ranks) {
  return sum_own_rows(tensor, ranks);
}
at::Tensor to_own_rows(at::Tensor tensor, int64_t, Communicator& ranks) {
  return own_rows(tensor, ranks);
}
at::Tensor to_all_columns(at::Tensor tensor, int64_t total, Communicator& ranks) {
  return all_columns(tensor, total, ranks);
}
at::Tensor to_own_columns(at::Tensor tensor, int64_t, Communicator& ranks) {
  return own_columns(tensor, ranks);
}

struct RegionNode final : model::LayerNode {
  RegionNode() : LayerNode("TensorRegionBackward") {}
  Move move = nullptr;
  int64_t total = 0;
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    at::Tensor gradient = std::move(gradients[0]);
    return {move(std::move(gradient), total, *ranks)};
  }
};

at::Tensor region(at::Tensor x, Move forward, Move backward, int64_t total, Communicator& ranks) {
  torch::autograd::edge_list edges;
  const bool recorded = torch::autograd::compute_requires_grad(x);
  if (recorded) edges = torch::autograd::collect_next_edges(x);
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    y = forward == to_sum_of_rows
            ? model::once(model::Operator::collective, [&] { return forward(std::move(x), total, ranks); })
            : forward(std::move(x), total, ranks);
  }
  if (!recorded) return y;
  std::shared_ptr<RegionNode> node(new RegionNode(), torch::autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  node->move = backward;
  node->total = total;
  node->ranks = &ranks;
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace

at::Tensor share(at::Tensor x, Communicator& ranks) {
  return region(std::move(x), keep, add_up, 0, ranks);
}

at::Tensor sum(at::Tensor part, Communicator& ranks) {
  return region(std::move(part), add_up, pass, 0, ranks);
}

at::Tensor gather_rows(at::Tensor own, int64_t total, Communicator& ranks, Gradient gradient) {
  return region(std::move(own), to_all_rows, gradient == Gradient::part ? to_sum_of_rows : to_own_rows, total,
                ranks);
}

at::Tensor sum_to_rows(at::Tensor part, Communicator& ranks) {
  const int64_t total = part.size(0);
  return region(std::move(part), to_sum_of_rows, to_all_rows, total, ranks);
}

at::Tensor slice_rows(at::Tensor whole, Communicator& ranks) {
  const int64_t total = whole.size(0);
  return region(std::move(whole), to_own_rows, to_all_rows, total, ranks);
}

at::Tensor gather_columns(at::Tensor own, int64_t total, Communicator& ranks) {
  return region(std::move(own), to_all_columns, to_own_columns, total, ranks);
}

at::Tensor slice_columns(at::Tensor whole, Communicator& ranks) {
  const int64_t total = whole.size(1);
  return region(std::move(whole), to_own_columns, to_all_columns, total, ranks);
}

}  // namespace heddle::tensor
