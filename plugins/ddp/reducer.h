// The buckets of a stage: filled as gradients come, launched in one order on every rank.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "arrivals.h"
#include "bucket.h"
#include "heddle/nn/weight_gradients.h"
#include "heddle/sdk.h"

namespace heddle::ddp {

struct Options {
  int64_t first_bucket_bytes = 1 << 20;  // small, so that the first sum starts early
  int64_t bucket_bytes = 25 << 20;
  // Autograd adds into the buckets: no gradients beside them, one more pass to clear.
  bool add_into_buckets = false;
  bool find_unused = false;   // by a walk over the graph of each step
  bool static_graph = false;  // learnt from the first step: what is used, and how often
};

struct Leaf {
  std::string name;
  at::Tensor tensor;
  bool in_parts = false;  // a parameter of several units
};

// After PyTorch's Reducer (Li et al. 2020). Where the order of gradients is the same in every step (always,
// or unless find_unused), buckets are assigned again after the first one, in the order in which rank 0's
// came.
class Reducer {
 public:
  // Leaves in the reverse of execution order.
  Reducer(std::vector<Leaf> leaves, Communicator& ranks, const Options& options);

  void begin_step();
  void expect_last() { last_ = true; }
  // Called by hooks on these outputs when a backward begins.
  void begin_backward(std::span<const std::weak_ptr<torch::autograd::Node>> roots);
  // The weight gradients of these leaves come now, all others are complete.
  void begin_drain(const WeightGradients::Accumulators& leaves);
  // The last backward has ended: launches the remaining buckets, so that collectives agree on all ranks.
  void end_backward();
  void launch_rest();
  // Throws Error{input} if the graph is not static, after the ranks have agreed.
  void finish();

 private:
  void make_buckets(const std::vector<int64_t>& order);
  void arrived(int parameter);
  void count_owed();
  void launch_full();
  void agree_on_order();
  void compare_use();

  std::vector<Leaf> leaves_;
  Communicator& ranks_;
  Options options_;
  Arrivals arrivals_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // autograd holds them only weakly
  std::unordered_map<const torch::autograd::Node*, int> places_;
  std::vector<Bucket*> bucket_of_;                // [parameter]
  std::vector<std::unique_ptr<Bucket>> buckets_;  // in the order of their launch
  std::vector<int64_t> new_order_;                // agreed after the first step, used by the second
  std::vector<bool> used_;                        // in the first step, on this rank
  bool last_ = false, begun_ = false, first_step_ = true;
  size_t launched_ = 0;
};

}  // namespace heddle::ddp
