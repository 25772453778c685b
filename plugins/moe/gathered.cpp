// The dispatcher `allgather`. Rows are padded to the number of the largest rank; padding has no expert.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <utility>

#include "dispatcher.h"
#include "flights.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"

namespace heddle::moe {
namespace {

using model::Operator;

struct Rows {
  int64_t own = 0, most = 0;  // rows of this rank, and of the rank that has the most
};

Rows count_rows(const at::Tensor& x, Communicator& ranks) {
  Rows rows{x.size(0), x.size(0)};
  if (x.is_meta()) return rows;
  const at::Tensor sizes = model::once(Operator::collective, [&] {
    const at::Tensor own = at::full({1}, rows.own, at::kLong), all = at::empty({ranks.size()}, at::kLong);
    ranks.all_gather(all, own)->wait();
    return all;
  });
  const int64_t* first = sizes.const_data_ptr<int64_t>();
  rows.most = *std::max_element(first, first + ranks.size());
  return rows;
}

at::Tensor padded(const at::Tensor& own, const Rows& rows, double filling) {
  if (own.size(0) == rows.most) return own.contiguous();
  const at::Tensor out = at::full({rows.most, own.size(1)}, filling, own.options().requires_grad(false));
  out.narrow(0, 0, rows.own).copy_(own);
  return out;
}

at::Tensor start_gather(const at::Tensor& own, const Rows& rows, double filling, Communicator& ranks,
                        Flights& flights) {
  return model::once(Operator::collective, [&] {
    at::Tensor all = at::empty({ranks.size() * rows.most, own.size(1)}, own.options().requires_grad(false));
    flights.add(ranks.all_gather(all, padded(own, rows, filling)));
    return all;
  });
}

// Sums the gradient of all rows over the ranks. An undefined gradient counts as zeros.
at::Tensor start_scatter(at::Tensor all, const Rows& rows, int64_t width, const at::TensorOptions& options,
                         Communicator& ranks, Flights& flights) {
  if (!all.defined()) all = at::full({ranks.size() * rows.most, width}, 0, options);
  at::Tensor sum = at::empty({rows.most, width}, all.options());
  flights.add(ranks.reduce_scatter(sum, all.contiguous()));
  return sum;
}

// Gathers tokens and weights of all ranks. Edges: tokens, weights.
struct GatherNode final : model::LayerNode {
  GatherNode() : LayerNode("GatherTokensBackward") {}
  Rows rows;
  int64_t widths[2] = {};
  at::TensorOptions options[2];
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    model::Gradients out(2);
    Flights flights;
    for (size_t i = 0; i < 2; ++i)
      if (task_should_compute_output(i))
        out[i] = start_scatter(std::move(gradients[i]), rows, widths[i], options[i], *ranks, flights);
    flights.wait();
    for (at::Tensor& gradient : out)
      if (gradient.defined()) gradient = gradient.narrow(0, 0, rows.own);
    return out;
  }
};

// Sums the outputs of all ranks and returns this rank's rows.
struct ScatterNode final : model::LayerNode {
  ScatterNode() : LayerNode("ScatterOutputsBackward") {}
  Rows rows;
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    const at::Tensor& own = gradients[0];
    at::Tensor all = at::empty({ranks->size() * rows.most, own.size(1)}, own.options());
    ranks->all_gather(all, padded(own, rows, 0))->wait();
    return {std::move(all)};
  }
};

at::Tensor scattered(const at::Tensor& y, const Rows& rows, Communicator& ranks) {
  return model::forward_with<ScatterNode>(
      [&](ScatterNode& node) {
        node.rows = rows;
        node.ranks = &ranks;
      },
      [&] {
        const at::Tensor sum = model::once(Operator::collective, [&] {
          at::Tensor of_own = at::empty({rows.most, y.size(1)}, y.options().requires_grad(false));
          ranks.reduce_scatter(of_own, y.contiguous())->wait();
          return of_own;
        });
        return sum.narrow(0, 0, rows.own);
      },
      y);
}

class Gathered final : public Dispatcher {
 public:
  Gathered(Communicator& ranks, bool same_experts) : ranks_(ranks), same_experts_(same_experts) {}

  at::Tensor run(const at::Tensor& x, const model::Routing& routing, Experts& experts, const Batch& batch,
                 model::Meanwhile& meanwhile, const Local& local, int64_t /*room*/) const override {
    const std::shared_ptr<GatherNode> node = record(x, routing.weights);
    Flights flights;
    Rows rows;
    at::Tensor all_x;
    model::Routing all;
    {
      const model::BelowAutograd below;
      rows = count_rows(x, ranks_);
      all.experts = start_gather(routing.experts, rows, -1, ranks_, flights);
      all_x = start_gather(x, rows, 0, ranks_, flights);
      all.weights = start_gather(routing.weights, rows, 0, ranks_, flights);
    }
    meanwhile.run();
    flights.wait();
    if (!same_experts_) all.experts = own_experts(all.experts, experts.held());
    if (node) {
      node->rows = rows;
      torch::autograd::set_history({all_x, all.weights}, node);
    }
    return scattered(local(all_x, all, experts, batch, meanwhile), rows, ranks_);
  }

 private:
  std::shared_ptr<GatherNode> record(const at::Tensor& x, const at::Tensor& weights) const {
    if (!torch::autograd::compute_requires_grad(x, weights)) return nullptr;
    auto node = model::make_node<GatherNode>(x, weights);
    node->ranks = &ranks_;
    const at::Tensor* given[] = {&x, &weights};
    for (size_t i = 0; i < 2; ++i) {
      node->widths[i] = given[i]->size(1);
      node->options[i] = given[i]->options().requires_grad(false);
    }
    return node;
  }

  // Returns expert indices relative to this rank's first expert, or -1 for experts of other ranks. On meta,
  // this rank's share of the choices.
  at::Tensor own_experts(const at::Tensor& all, int64_t held) const {
    if (all.is_meta()) return all.narrow(1, 0, std::max<int64_t>(1, all.size(1) / ranks_.size()));
    const at::Tensor counted = all - ranks_.rank() * held;
    return at::where((counted >= 0).logical_and(counted < held), counted, -1);
  }

  Communicator& ranks_;
  const bool same_experts_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_gathered(Communicator& ranks) {
  return std::make_unique<Gathered>(ranks, false);
}

std::unique_ptr<Dispatcher> make_joined(Communicator& ranks) {
  return std::make_unique<Gathered>(ranks, true);
}

}  // namespace heddle::moe
