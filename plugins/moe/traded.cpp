// The dispatcher `alltoall`: rows sorted by expert travel to its rank, and the same way back.
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "dispatcher.h"
#include "flights.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/experts.h"

namespace heddle::moe {
namespace {

using model::ExpertRows;
using model::Operator;

// What this rank sends and gets.
struct Trade {
  ExpertRows sorted;                // of this rank's tokens, by the model's experts
  std::vector<int64_t> sent, come;  // [ranks]: rows
  at::Tensor counts;                // int64 [ranks, held], on the host: rows that come, by rank and expert
  int64_t tokens = 0, choices = 0;
  int64_t coming() const {
    int64_t rows = 0;
    for (const int64_t count : come) rows += count;
    return rows;
  }
};

at::Tensor start_trip(const at::Tensor& rows, const std::vector<int64_t>& out_rows,
                      const std::vector<int64_t>& in_rows, Communicator& ranks, Flights& flights) {
  int64_t come = 0;
  for (const int64_t count : out_rows) come += count;
  at::Tensor out = at::empty({come, rows.size(1)}, rows.options().requires_grad(false));
  flights.add(ranks.all_to_all(out, rows.contiguous(), out_rows, in_rows));
  return out;
}

// How many rows come, by rank and expert: exchanged by the hosts.
at::Tensor exchange_counts(const ExpertRows& sorted, int64_t held, Communicator& ranks) {
  const at::Tensor own = at::empty({ranks.size(), held}, at::kLong), got = at::empty_like(own);
  int64_t* const count = own.mutable_data_ptr<int64_t>();
  for (int64_t e = 0; e < own.numel(); ++e) count[e] = sorted.of(e);
  const std::vector<int64_t> one_each(static_cast<size_t>(ranks.size()), 1);
  ranks.all_to_all(got, own, one_each, one_each)->wait();
  return got;
}

// On meta every rank is taken to send what this one would send itself.
at::Tensor taken_for_granted(const ExpertRows& sorted, int64_t held, Communicator& ranks) {
  const at::Tensor got = at::empty({ranks.size(), held}, at::kLong);
  for (int64_t r = 0; r < ranks.size(); ++r)
    for (int64_t e = 0; e < held; ++e)
      got.mutable_data_ptr<int64_t>()[r * held + e] = sorted.of(ranks.rank() * held + e);
  return got;
}

std::shared_ptr<const Trade> agree(const model::Routing& routing, int64_t held, Communicator& ranks) {
  auto trade = std::make_shared<Trade>();
  trade->tokens = routing.experts.size(0);
  trade->choices = routing.experts.size(1);
  trade->sorted = model::sort_by_expert(routing.experts, held * ranks.size());
  trade->counts =
      routing.experts.is_meta()
          ? taken_for_granted(trade->sorted, held, ranks)
          : model::once(Operator::collective, [&] { return exchange_counts(trade->sorted, held, ranks); });
  const int64_t* count = trade->counts.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < ranks.size(); ++r, count += held) {
    int64_t rows = 0;
    for (int64_t e = 0; e < held; ++e) rows += count[e];
    trade->come.push_back(rows);
    trade->sent.push_back(trade->sorted.begins[(r + 1) * held] - trade->sorted.begins[r * held]);
  }
  return trade;
}

// The expert of each row that comes, counted from this rank's first: [rows, 1].
at::Tensor experts_of_rows(const Trade& trade, c10::Device device) {
  const int64_t ranks = trade.counts.size(0), held = trade.counts.size(1);
  const at::Tensor out = at::empty({trade.coming(), 1}, at::kLong);
  int64_t* next = out.mutable_data_ptr<int64_t>();
  const int64_t* count = trade.counts.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t e = 0; e < held; ++e) next = std::fill_n(next, *count++, e);
  return out.to(device);
}

// Edges: tokens, weights. To the rows that come, and their weights.
struct SendNode final : model::LayerNode {
  SendNode() : LayerNode("SendTokensBackward") {}
  std::shared_ptr<const Trade> trade;
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
    if (rows.defined()) out[0] = model::combine_rows(rows, trade->sorted, trade->tokens);
    if (weights.defined()) {
      out[1] = at::zeros({trade->tokens, trade->choices}, of_weights);
      if (!weights.is_meta()) out[1].view({-1}).index_copy_(0, trade->sorted.slots, weights.view({-1}));
    }
    return out;
  }

 private:
  // An undefined gradient counts as zeros: the other ranks wait for it.
  at::Tensor start_back(at::Tensor gradient, int64_t columns, const at::TensorOptions& options,
                        Flights& flights) const {
    if (!gradient.defined()) gradient = at::zeros({trade->coming(), columns}, options);
    return start_trip(gradient, trade->sent, trade->come, *ranks, flights);
  }
};

// The experts' outputs back to their tokens.
struct ReturnNode final : model::LayerNode {
  ReturnNode() : LayerNode("ReturnOutputsBackward") {}
  std::shared_ptr<const Trade> trade;
  Communicator* ranks = nullptr;

  model::Gradients backward(model::Gradients&& gradients) override {
    Flights flights;
    at::Tensor rows = start_trip(model::take_rows(gradients[0].contiguous(), trade->sorted), trade->come,
                                 trade->sent, *ranks, flights);
    flights.wait();
    return {std::move(rows)};
  }
};

class Traded final : public Dispatcher {
 public:
  explicit Traded(Communicator& ranks) : ranks_(ranks) {}

  at::Tensor run(const at::Tensor& x, const model::Routing& routing, Experts& experts, const Batch& batch,
                 model::Meanwhile& meanwhile, const Local& local) const override {
    const std::shared_ptr<SendNode> node = record(x, routing.weights);
    Flights flights;
    std::shared_ptr<const Trade> trade;
    at::Tensor rows;
    model::Routing come;
    {
      const model::BelowAutograd below;
      trade = agree(routing, experts.held(), ranks_);
      rows = model::once(Operator::collective,
                         [&] { return start(model::take_rows(x, trade->sorted), *trade, flights); });
      come.weights = model::once(Operator::collective, [&] {
        const at::Tensor flat = routing.weights.reshape({-1, 1});
        return start(at::index_select(flat, 0, trade->sorted.slots), *trade, flights);
      });
      come.experts = experts_of_rows(*trade, x.device());
    }
    meanwhile.run();
    flights.wait();
    if (node) {
      node->trade = trade;
      torch::autograd::set_history({rows, come.weights}, node);
    }
    return returned(local(rows, come, experts, batch, meanwhile), trade);
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

  at::Tensor start(const at::Tensor& rows, const Trade& trade, Flights& flights) const {
    return start_trip(rows, trade.come, trade.sent, ranks_, flights);
  }

  at::Tensor returned(const at::Tensor& of_rows, const std::shared_ptr<const Trade>& trade) const {
    std::shared_ptr<ReturnNode> node;
    if (torch::autograd::compute_requires_grad(of_rows)) {
      node = model::make_node<ReturnNode>(of_rows);
      node->trade = trade;
      node->ranks = &ranks_;
    }
    at::Tensor y;
    {
      const model::BelowAutograd below;
      const at::Tensor back = model::once(Operator::collective, [&] {
        Flights flights;
        at::Tensor rows = start_trip(of_rows, trade->sent, trade->come, ranks_, flights);
        flights.wait();
        return rows;
      });
      y = model::combine_rows(back, trade->sorted, trade->tokens);
    }
    if (node) torch::autograd::set_history(y, node);
    return y;
  }

  Communicator& ranks_;
};

}  // namespace

std::unique_ptr<Dispatcher> make_traded(Communicator& ranks) {
  return std::make_unique<Traded>(ranks);
}

}  // namespace heddle::moe
