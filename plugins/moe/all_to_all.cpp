// The dispatcher `alltoall`: rows sorted by expert go to the ranks of their experts, and return the same way.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "dispatcher.h"
#include "flights.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "token_exchange.h"

namespace heddle::moe {
namespace {

at::Tensor start_trip(const at::Tensor& rows, const std::vector<int64_t>& out_rows,
                      const std::vector<int64_t>& in_rows, Communicator& ranks, Flights& flights) {
  int64_t come = 0;
  for (const int64_t count : out_rows) come += count;
  at::Tensor out = at::empty({come, rows.size(1)}, rows.options().requires_grad(false));
  flights.add(ranks.all_to_all(out, rows.contiguous(), out_rows, in_rows));
  return out;
}

// Sends rows and weights to the experts' ranks. Edges: tokens, weights.
struct SendNode final : model::LayerNode {
  SendNode() : LayerNode("SendTokensBackward") {}
  std::shared_ptr<const TokenExchange> exchange;
  int64_t width = 0;
  at::TensorOptions of_x, of_weights;
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    model::Gradients out(2);
    at::Tensor rows, weights;
    Flights flights;
    if (task_should_compute_output(0)) rows = start_back(std::move(gradients[0]), width, of_x, flights);
    if (task_should_compute_output(1)) weights = start_back(std::move(gradients[1]), 1, of_weights, flights);
    flights.wait();
    if (rows.defined()) out[0] = exchange->to_tokens(rows);
    if (weights.defined()) out[1] = exchange->to_slots(weights);
    return out;
  }

 private:
  // An undefined gradient counts as zeros, because the other ranks wait for it.
  at::Tensor start_back(at::Tensor gradient, int64_t columns, const at::TensorOptions& options,
                        Flights& flights) const {
    if (!gradient.defined()) gradient = at::zeros({exchange->coming(), columns}, options);
    return start_trip(gradient, exchange->sent, exchange->come, *ranks, flights);
  }
};

// Returns the experts' outputs to the ranks of their tokens.
struct ReturnNode final : model::LayerNode {
  ReturnNode() : LayerNode("ReturnOutputsBackward") {}
  std::shared_ptr<const TokenExchange> exchange;
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    Flights flights;
    at::Tensor rows = start_trip(exchange->rows_of_tokens(gradients[0].contiguous()), exchange->come,
                                 exchange->sent, *ranks, flights);
    flights.wait();
    return {std::move(rows)};
  }
};

class Traded final : public Dispatcher {
 public:
  explicit Traded(Communicator& ranks) : ranks_(ranks) {}

  at::Tensor run(const at::Tensor& x, const model::Routing& routing, Experts& experts, const Batch& batch,
                 model::Meanwhile& meanwhile, const Local& local, int64_t room) const override {
    const std::shared_ptr<SendNode> node = record(x, routing.weights);
    Flights flights;
    std::shared_ptr<const TokenExchange> exchange;
    at::Tensor rows;
    model::Routing come;
    {
      const model::BelowAutograd below;
      exchange = agree(routing, experts.held(), room, ranks_);
      rows = start(*exchange, flights, [&] { return exchange->rows_of_tokens(x); });
      come.weights = start(*exchange, flights, [&] {
        return exchange->rows_of_slots(routing.weights.reshape({-1, 1}));
      });
      come.experts = experts_of_rows(*exchange);
      if (x.is_meta()) come.experts = come.experts.to(at::kMeta);
    }
    meanwhile.run();
    flights.wait();
    if (node) {
      node->exchange = exchange;
      torch::autograd::set_history({rows, come.weights}, node);
    }
    return returned(local(rows, come, experts, batch, meanwhile), exchange);
  }

 private:
  std::shared_ptr<SendNode> record(const at::Tensor& x, const at::Tensor& weights) const {
    if (!torch::autograd::compute_requires_grad(x, weights)) return nullptr;
    auto node = model::make_node<SendNode>(x, weights);
    node->width = x.size(1);
    node->of_x = x.options().requires_grad(false);
    node->of_weights = weights.options().requires_grad(false);
    node->ranks = &ranks_;
    return node;
  }

  template <class Make>
  at::Tensor start(const TokenExchange& exchange, Flights& flights, Make make) const {
    return model::once(model::Operator::collective,
                       [&] { return start_trip(make(), exchange.come, exchange.sent, ranks_, flights); });
  }

  at::Tensor returned(const at::Tensor& of_rows, const std::shared_ptr<const TokenExchange>& exchange) const {
    std::shared_ptr<ReturnNode> node;
    if (torch::autograd::compute_requires_grad(of_rows)) {
      node = model::make_node<ReturnNode>(of_rows);
      node->exchange = exchange;
      node->ranks = &ranks_;
    }
    at::Tensor y;
    {
      const model::BelowAutograd below;
      const at::Tensor back = model::once(model::Operator::collective, [&] {
        Flights flights;
        at::Tensor rows = start_trip(of_rows, exchange->sent, exchange->come, ranks_, flights);
        flights.wait();
        return rows;
      });
      y = exchange->to_tokens(back);
    }
    if (node) torch::autograd::set_history(y, node);
    return y;
  }

  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_all_to_all(Communicator& ranks) {
  return std::make_unique<Traded>(ranks);
}

}  // namespace heddle::moe
