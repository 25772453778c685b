// Buckets of a stage, filled as gradients arrive and launched in the same order on every rank.
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
  int64_t first_bucket_bytes = 1 << 20;  // small, so that the first reduction starts early
  int64_t bucket_bytes = 25 << 20;
  // Autograd adds into the buckets. This saves a copy of the gradients and costs one pass to clear them.
  bool add_into_buckets = false;
  bool find_unused = false;   // traverse the graph of each step
  bool static_graph = false;  // the first step determines used parameters and numbers of gradients
};

struct Leaf {
  std::string name;
  at::Tensor tensor;
  bool in_parts = false;  // several units share the parameter
};

// Modeled on PyTorch's Reducer (Li et al. 2020). If gradients arrive in the same order in every step (always,
// or unless find_unused is set), buckets are reassigned after the first step, in rank 0's order of arrival.
class Reducer {
 public:
  // Leaves in reverse execution order.
  Reducer(std::vector<Leaf> leaves, Communicator& ranks, const Options& options);

  void begin_step();
  void expect_last() { last_ = true; }
  // Called by hooks on these outputs when a backward begins.
  void begin_backward(std::span<const std::weak_ptr<torch::autograd::Node>> roots);
  // The deferred weight gradients of these leaves come now. All other gradients are complete.
  void begin_drain(const WeightGradients::Accumulators& leaves);
  // Ends the last backward. Launches the remaining buckets, so that all ranks call the same collectives.
  void end_backward();
  void launch_rest();
  // Throws Error{input} on all ranks if static_graph is set and the graph changed.
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
  std::vector<std::unique_ptr<Bucket>> buckets_;  // in launch order
  std::vector<int64_t> new_order_;                // agreed after the first step, applied in the second
  std::vector<bool> used_;                        // parameters used in the first step on this rank
  bool last_ = false, begun_ = false, first_step_ = true;
  size_t launched_ = 0;
};

}  // namespace heddle::ddp
