// Overlapped products: rows are broadcast rank by rank and multiplied as they arrive, and sums are reduced in
// pieces.
#include "overlap.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "heddle/model/autograd_node.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/weight_gradients.h"
#include "parts.h"

namespace heddle::tensor {
namespace {

using model::Saved;
using torch::autograd::Edge;

constexpr int64_t kPieces = 4;  // pieces of a rank's rows in a sum

at::Tensor empty_rows(int64_t rows, int64_t width, const at::Tensor& like) {
  return at::empty({rows, width}, like.options().requires_grad(false));
}

// Gathers all rows. Calls `use` for each rank's rows as soon as they arrive.
at::Tensor gather_behind(const at::Tensor& own, int64_t total, Communicator& ranks,
                         const std::function<void(const Part& rows, const at::Tensor& values)>& use) {
  at::Tensor all = empty_rows(total, own.size(1), own);
  std::vector<std::unique_ptr<Work>> coming;
  std::vector<Part> parts;
  const Part mine = rows_of(total, ranks.size(), ranks.rank());
  all.narrow(0, mine.begin, mine.count).copy_(own);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    parts.push_back(rows_of(total, ranks.size(), rank));
    const Part& rows = parts.back();
    coming.push_back(rows.count == 0 ? nullptr
                                     : ranks.broadcast(all.narrow(0, rows.begin, rows.count), rank));
  }
  const auto multiply = [&](int rank) {
    const Part& rows = parts[rank];
    if (rows.count > 0) use(rows, all.narrow(0, rows.begin, rows.count));
  };
  multiply(ranks.rank());
  for (int step = 0; step < ranks.size(); ++step) {
    const int rank = (ranks.rank() + step) % ranks.size();
    if (coming[rank]) coming[rank]->wait();
    if (step > 0) multiply(rank);
  }
  return all;
}

// A reduction in flight, of which each rank gets its rows.
class Scatter {
 public:
  // `make` writes the rows [begin, begin + out.size(0)) of this rank's summand.
  Scatter(int64_t total, int64_t width, const at::Tensor& like, Communicator& ranks,
          const std::function<void(int64_t begin, at::Tensor out)>& make)
      : total_(total), ranks_(ranks) {
    const int64_t chunk = row_chunk(total, ranks.size());
    const int64_t step = std::max<int64_t>(1, (chunk + kPieces - 1) / kPieces);
    sum_ = empty_rows(chunk, width, like);
    for (int64_t first = 0; first < chunk; first += step) {
      const int64_t count = std::min(step, chunk - first);
      at::Tensor piece = at::empty({ranks.size(), count, width}, sum_.options());
      for (int rank = 0; rank < ranks.size(); ++rank) {
        const int64_t begin = rank * chunk + first;
        const int64_t there = std::clamp<int64_t>(total - begin, 0, count);
        if (there > 0) make(begin, piece.select(0, rank).narrow(0, 0, there));
        if (there < count) piece.select(0, rank).narrow(0, there, count - there).zero_();
      }
      flying_.push_back(ranks.reduce_scatter(sum_.narrow(0, first, count), piece));
    }
  }
  at::Tensor rows() {
    for (auto& work : flying_) work->wait();
    flying_.clear();
    return sum_.narrow(0, 0, rows_of(total_, ranks_.size(), ranks_.rank()).count);
  }

 private:
  int64_t total_;
  Communicator& ranks_;
  at::Tensor sum_;
  std::vector<std::unique_ptr<Work>> flying_;
};

Edge edge_to(const at::Tensor& tensor) {
  return tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : Edge();
}

// Adds the work to the queue if this backward is split and the parameters are leaves.
bool put_off(WeightGradients* later, const Edge& weight, const Edge& bias, const at::Tensor& dy,
             const at::Tensor& x) {
  if (later == nullptr || !later->defers()) return false;
  for (const Edge& edge : {weight, bias})
    if (edge.is_valid() && !WeightGradients::is_leaf(edge)) return false;
  const bool has_weight = weight.is_valid(), has_bias = bias.is_valid();
  if (!has_weight && !has_bias) return true;
  later->push({weight, bias}, [dy, x, has_weight, has_bias]() -> WeightGradients::Gradients {
    return {has_weight ? model::matrix_product(dy.t(), x) : at::Tensor(),
            has_bias ? dy.sum(0) : at::Tensor()};
  });
  return true;
}

// Edges: x, then weight and bias of each layer.
struct GatheredNode final : model::LayerNode {
  GatheredNode() : LayerNode("GatheredProductsBackward") {}
  Saved all_rows;
  std::vector<Saved> weights;
  Communicator* ranks = nullptr;
  WeightGradients* later = nullptr;

  model::Gradients backward(model::Gradients&& given) override {
    model::Gradients out(num_outputs()), dy(given.size());
    const at::Tensor all = all_rows.unpack();
    std::vector<at::Tensor> saved(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      if (given[i].defined()) dy[i] = given[i].contiguous();
      saved[i] = weights[i].unpack();
    }
    std::optional<Scatter> dx;
    if (task_should_compute_output(0))
      dx.emplace(all.size(0), all.size(1), all, *ranks, [&](int64_t begin, at::Tensor piece) {
        bool first = true;
        for (size_t i = 0; i < dy.size(); ++i) {
          if (!dy[i].defined()) continue;
          const at::Tensor rows = dy[i].narrow(0, begin, piece.size(0));
          if (std::exchange(first, false))
            model::matrix_product_into(piece, rows, saved[i]);
          else
            model::add_matrix_product(piece, rows, saved[i]);
        }
      });
    for (size_t i = 0; i < dy.size(); ++i) {
      if (!dy[i].defined()) continue;
      if (put_off(later, next_edge(1 + 2 * i), next_edge(2 + 2 * i), dy[i], all)) continue;
      if (task_should_compute_output(1 + 2 * i)) out[1 + 2 * i] = model::matrix_product(dy[i].t(), all);
      if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = dy[i].sum(0);
    }
    if (dx) out[0] = dx->rows();
    return out;
  }
  void release_variables() override {
    all_rows.reset();
    for (Saved& weight : weights) weight.reset();
  }
};

// Edges: x, weight.
struct ScatteredNode final : model::LayerNode {
  ScatteredNode() : LayerNode("ScatteredProductBackward") {}
  Saved x, weight;
  Communicator* ranks = nullptr;
  WeightGradients* later = nullptr;

  model::Gradients backward(model::Gradients&& given) override {
    model::Gradients out(2);
    const at::Tensor whole_x = x.unpack(), w = weight.unpack();
    const bool wants_dx = task_should_compute_output(0);
    at::Tensor dx;
    if (wants_dx) dx = at::empty_like(whole_x);
    const at::Tensor dy =
        gather_behind(given[0], whole_x.size(0), *ranks, [&](const Part& rows, const at::Tensor& values) {
          if (!wants_dx) return;
          at::Tensor piece = dx.narrow(0, rows.begin, rows.count);
          model::matrix_product_into(piece, values, w);
        });
    if (wants_dx) out[0] = std::move(dx);
    if (!put_off(later, next_edge(1), {}, dy, whole_x) && task_should_compute_output(1))
      out[1] = model::matrix_product(dy.t(), whole_x);
    return out;
  }
  void release_variables() override {
    x.reset();
    weight.reset();
  }
};

void record(const model::FewTensors& outputs, std::span<Linear* const> layers, const at::Tensor& x,
            const at::Tensor& all, const Batch& batch, Communicator& ranks) {
  bool wanted = torch::autograd::compute_requires_grad(x);
  for (const Linear* layer : layers)
    wanted = wanted || torch::autograd::compute_requires_grad(layer->weight, layer->bias);
  if (!wanted) return;
  std::shared_ptr<GatheredNode> node(new GatheredNode(), torch::autograd::deleteNode);
  torch::autograd::edge_list edges{edge_to(x)};
  for (const Linear* layer : layers) {
    edges.push_back(edge_to(layer->weight));
    edges.push_back(edge_to(layer->bias));
    node->weights.emplace_back().save_weight(layer->weight);
  }
  node->set_next_edges(std::move(edges));
  node->all_rows.save(all);
  node->ranks = &ranks;
  node->later = batch.weight_gradients;
  for (const at::Tensor& y : outputs) torch::autograd::set_history(y, node);
}

}  // namespace

model::FewTensors gathered_products(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                                    Communicator& ranks) {
  const int64_t total = batch.tokens.numel();
  model::FewTensors out;
  at::Tensor all;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    for (const Linear* layer : layers) out.push_back(empty_rows(total, layer->weight.size(0), x));
    all = gather_behind(x, total, ranks, [&](const Part& rows, const at::Tensor& values) {
      for (size_t i = 0; i < layers.size(); ++i) {
        at::Tensor y = out[i].narrow(0, rows.begin, rows.count);
        const at::Tensor turned = layers[i]->weight.t();
        model::matrix_product_into(y, values, turned, layers[i]->bias);
      }
    });
  }
  record(out, layers, x, all, batch, ranks);
  return out;
}

at::Tensor scattered_product(const Linear& layer, const at::Tensor& x, const Batch& batch,
                             Communicator& ranks) {
  std::shared_ptr<ScatteredNode> node;
  if (torch::autograd::compute_requires_grad(x, layer.weight)) {
    node = model::make_node<ScatteredNode>(x, layer.weight);
    node->x.save(x);
    node->weight.save_weight(layer.weight);
    node->ranks = &ranks;
    node->later = batch.weight_gradients;
  }
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor turned = layer.weight.t();
    y = model::once(model::Operator::collective, [&] {
      return Scatter(x.size(0), layer.weight.size(0), x, ranks,
                     [&](int64_t begin, at::Tensor piece) {
                       model::matrix_product_into(piece, x.narrow(0, begin, piece.size(0)), turned);
                     })
          .rows();
    });
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

}  // namespace heddle::tensor
