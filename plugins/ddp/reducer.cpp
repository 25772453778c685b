// Reducer of DDP: expected gradients per bucket, and the reassignment of buckets after the first step.
#include "reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <numeric>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "heddle/model/autograd_node.h"
#include "heddle/parallel/after_gradient.h"

namespace heddle::ddp {
namespace {

using torch::autograd::Node;

// Returns true for every accumulator of `places` that the graph from `roots` reaches. places maps an
// accumulator to its index in the result. All are true if the graph contains a unit that is recomputed in a
// nested backward, because its graph does not show which parameters it uses. Traverses the whole graph.
std::vector<bool> reach(std::span<const std::weak_ptr<Node>> roots,
                        const std::unordered_map<const Node*, int>& places) {
  std::vector<bool> reached(places.size());
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const std::weak_ptr<Node>& root : roots) visit(root.lock().get());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (const auto place = places.find(node); place != places.end()) reached[place->second] = true;
    if (dynamic_cast<const model::LayerNode*>(node) == nullptr && node->name() == "RecomputeBackward")
      return std::vector<bool>(places.size(), true);
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return reached;
}

Arrivals arrivals_of(const std::vector<Leaf>& leaves) {
  std::vector<std::string> names;
  std::vector<bool> parts;
  for (const Leaf& leaf : leaves) {
    names.push_back(leaf.name);
    parts.push_back(leaf.in_parts);
  }
  return {std::move(names), std::move(parts)};
}

}  // namespace

Reducer::Reducer(std::vector<Leaf> leaves, Communicator& ranks, const Options& options)
    : leaves_(std::move(leaves)), ranks_(ranks), options_(options), arrivals_(arrivals_of(leaves_)) {
  for (int i = 0; i < arrivals_.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(leaves_[i].tensor));
    places_.emplace(accumulators_.back().get(), i);
    accumulators_.back()->add_post_hook(std::make_unique<AfterGradient>([this, i] { arrived(i); }));
  }
  std::vector<int64_t> order(leaves_.size());
  std::iota(order.begin(), order.end(), 0);
  make_buckets(order);
}

void Reducer::make_buckets(const std::vector<int64_t>& order) {
  buckets_.clear();
  bucket_of_.assign(leaves_.size(), nullptr);
  std::vector<at::Tensor> tensors;
  for (const Leaf& leaf : leaves_) {
    leaf.tensor.mutable_grad().reset();
    tensors.push_back(leaf.tensor);
  }
  for (std::vector<int>& members : deal(tensors, order, options_.first_bucket_bytes, options_.bucket_bytes)) {
    std::vector<at::Tensor> parts;
    for (const int parameter : members) parts.push_back(tensors[parameter]);
    Bucket& bucket =
        *buckets_.emplace_back(std::make_unique<Bucket>(std::move(members), std::move(parts), ranks_));
    for (const int parameter : bucket.members()) bucket_of_[parameter] = &bucket;
  }
}

void Reducer::begin_step() {
  if (!new_order_.empty()) make_buckets(std::exchange(new_order_, {}));
  launched_ = 0;
  begun_ = false;
  for (auto& bucket : buckets_) options_.add_into_buckets ? bucket->begin_here() : bucket->begin();
}

void Reducer::count_owed() {
  for (auto& bucket : buckets_) {
    bucket->owed = 0;
    for (const int parameter : bucket->members()) bucket->owed += arrivals_.there(parameter) ? 0 : 1;
  }
}

void Reducer::begin_backward(std::span<const std::weak_ptr<torch::autograd::Node>> roots) {
  if (!last_ || std::exchange(begun_, true)) return;
  const bool learning = options_.static_graph && first_step_;
  arrivals_.begin(learning ? Arrivals::Count::learning : Arrivals::Count::as_owed);
  if (options_.find_unused && !options_.static_graph) arrivals_.reached_only(reach(roots, places_));
  count_owed();
}

void Reducer::begin_drain(const WeightGradients::Accumulators& leaves) {
  if (!last_ || std::exchange(begun_, true)) return;
  std::vector<bool> awaited(leaves_.size());
  for (const torch::autograd::Node* leaf : leaves)
    if (const auto place = places_.find(leaf); place != places_.end()) awaited[place->second] = true;
  arrivals_.begin(Arrivals::Count::as_owed);
  arrivals_.draining(awaited);
  count_owed();
  launch_full();
}

void Reducer::arrived(int parameter) {
  if (!begun_ || !arrivals_.arrive(parameter)) return;
  --bucket_of_[parameter]->owed;
  launch_full();
}

void Reducer::launch_full() {
  while (launched_ < buckets_.size() && buckets_[launched_]->owed == 0) buckets_[launched_++]->launch(ranks_);
}

void Reducer::end_backward() {
  if (last_) launch_rest();
}

void Reducer::launch_rest() {
  while (launched_ < buckets_.size()) buckets_[launched_++]->launch(ranks_);
}

void Reducer::finish() {
  launch_rest();
  for (auto& bucket : buckets_) bucket->finish();
  if (first_step_ && (options_.static_graph || !options_.find_unused)) agree_on_order();
  if (options_.static_graph) compare_use();
  first_step_ = last_ = begun_ = false;
}

// Collectives must have one order on all ranks, but gradients may arrive in a different order on each.
void Reducer::agree_on_order() {
  at::NoGradGuard no_gradients;
  const at::Tensor order = at::empty({arrivals_.size()}, at::kLong);
  const std::vector<int64_t> mine = arrivals_.order();
  std::copy(mine.begin(), mine.end(), order.mutable_data_ptr<int64_t>());
  ranks_.broadcast(order, 0)->wait();  // the host reads it: waits for the device
  const int64_t* first = order.const_data_ptr<int64_t>();
  new_order_.assign(first, first + order.numel());
}

void Reducer::compare_use() {
  std::vector<bool> used(leaves_.size());
  for (const auto& bucket : buckets_)
    for (size_t i = 0; i < bucket->members().size(); ++i)
      used[bucket->members()[i]] = bucket->had(static_cast<int>(i));
  if (first_step_) {
    used_ = std::move(used);
    return arrivals_.learn();
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (used[i] != used_[i])
      throw Error(ErrorCode::input, "ddp",
                  "static_graph is true, but the parameter '" + leaves_[i].name + "' had " +
                      (used[i] ? "no gradient in the first step, and has one now"
                               : "a gradient in the first step, and has none now"),
                  "set static_graph: false, which takes every step as it comes");
}

}  // namespace heddle::ddp
