// All-gather of rows, and its autograd node, whose backward is a sum.
#include "gather.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "heddle/model/autograd_node.h"

namespace acme {
namespace {

namespace model = heddle::model;

// Pads the rows of every rank to the number of the largest rank.
at::Tensor gathered(const at::Tensor& part, int64_t rows, heddle::Communicator& ranks) {
  const Rows mine = rows_of(rows, ranks.size(), ranks.rank());
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes[0] = mine.most;
  const at::Tensor sent = at::zeros(sizes, part.options().requires_grad(false));
  sent.narrow(0, 0, mine.count).copy_(part);
  sizes[0] = mine.most * ranks.size();
  const at::Tensor all = at::zeros(sizes, sent.options());
  ranks.all_gather(all, sent)->wait();
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks.size(); ++rank)
    parts.push_back(all.narrow(0, rank * mine.most, rows_of(rows, ranks.size(), rank).count));
  return at::cat(parts);
}

struct GatherNode final : model::LayerNode {
  GatherNode() : LayerNode("AcmeGatherBackward") {}
  heddle::Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    const at::Tensor sum = gradients[0].clone(at::MemoryFormat::Contiguous);
    ranks->all_reduce(sum)->wait();
    const Rows mine = rows_of(sum.size(0), ranks->size(), ranks->rank());
    return {sum.narrow(0, mine.begin, mine.count).clone()};
  }
};

}  // namespace

Rows rows_of(int64_t rows, int ranks, int rank) {
  const int64_t each = rows / ranks, more = rows % ranks;
  return {rank * each + std::min<int64_t>(rank, more), each + (rank < more ? 1 : 0),
          each + (more > 0 ? 1 : 0)};
}

at::Tensor gather_rows(const at::Tensor& part, int64_t rows, heddle::Communicator& ranks) {
  return model::forward_with<GatherNode>([&](GatherNode& node) { node.ranks = &ranks; },
                                         [&] { return gathered(part, rows, ranks); }, part);
}

}  // namespace acme
