// Slice and gather of token rows; each is the backward of the other.
#include "parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"

namespace heddle::moe {
namespace {

struct Part {
  int64_t begin, count, chunk;
};

Part part_of(int64_t rows, const Communicator& ranks) {
  const int64_t chunk = (rows + ranks.size() - 1) / ranks.size();
  const int64_t begin = std::min(rows, chunk * ranks.rank());
  return {begin, std::min(chunk, rows - begin), chunk};
}

at::Tensor cut(const at::Tensor& whole, const Communicator& ranks) {
  const Part part = part_of(whole.size(0), ranks);
  return whole.narrow(0, part.begin, part.count).clone(at::MemoryFormat::Contiguous);
}

at::Tensor joined(const at::Tensor& own, int64_t rows, Communicator& ranks) {
  const Part part = part_of(rows, ranks);
  at::Tensor mine = own.contiguous();
  if (part.count < part.chunk) {
    mine = at::zeros({part.chunk, own.size(1)}, own.options().requires_grad(false));
    mine.narrow(0, 0, part.count).copy_(own);
  }
  at::Tensor all = at::empty({part.chunk * ranks.size(), own.size(1)}, mine.options());
  ranks.all_gather(all, mine)->wait();
  return all.narrow(0, 0, rows);
}

// Edges: x, weights.
struct PartNode final : model::LayerNode {
  PartNode() : LayerNode("OwnPartBackward") {}
  int64_t rows = 0, widths[2] = {};
  at::TensorOptions options[2];
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    model::Gradients out(2);
    for (size_t i = 0; i < 2; ++i) {
      if (!task_should_compute_output(i)) continue;
      at::Tensor own = std::move(gradients[i]);
      if (!own.defined()) own = at::zeros({part_of(rows, *ranks).count, widths[i]}, options[i]);
      out[i] = joined(own, rows, *ranks);
    }
    return out;
  }
};

struct WholeNode final : model::LayerNode {
  WholeNode() : LayerNode("WholeOfPartsBackward") {}
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override { return {cut(gradients[0], *ranks)}; }
};

}  // namespace

at::Tensor own_part(const at::Tensor& plain, Communicator& ranks) {
  const model::BelowAutograd below;
  return cut(plain, ranks);
}

std::pair<at::Tensor, at::Tensor> own_part(const at::Tensor& x, const at::Tensor& weights,
                                           Communicator& ranks) {
  std::shared_ptr<PartNode> node;
  if (torch::autograd::compute_requires_grad(x, weights)) {
    node = model::make_node<PartNode>(x, weights);
    node->rows = x.size(0);
    const at::Tensor* given[] = {&x, &weights};
    for (size_t i = 0; i < 2; ++i) {
      node->widths[i] = given[i]->size(1);
      node->options[i] = given[i]->options().requires_grad(false);
    }
    node->ranks = &ranks;
  }
  std::pair<at::Tensor, at::Tensor> out{own_part(x, ranks), own_part(weights, ranks)};
  if (node) torch::autograd::set_history({out.first, out.second}, node);
  return out;
}

at::Tensor whole_of_parts(const at::Tensor& part, int64_t rows, Communicator& ranks) {
  return model::forward_with<WholeNode>(
      [&](WholeNode& node) { node.ranks = &ranks; },
      [&] { return model::once(model::Operator::collective, [&] { return joined(part, rows, ranks); }); },
      part);
}

}  // namespace heddle::moe
