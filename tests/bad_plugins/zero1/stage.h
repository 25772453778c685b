// ZeRO-1 (Rajbhandari et al. 2020) in its simplest form: whole parameters on every rank, and a part of each
// bucket owned by each rank, which updates it. Where kFault says so, one thing in it is wrong.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <vector>

#include "faults.h"
#include "heddle/parallel/flat.h"
#include "heddle/sdk.h"

namespace zero1 {

struct Parameter {
  at::Tensor leaf;             // the model's
  heddle::Shard whole;         // without a tensor
  int64_t begin = 0, end = 0;  // in its bucket
  size_t first_shard = 0, shards = 0;
  at::Tensor taken;  // a gradient that a fault took too early
};

struct Bucket {
  size_t first = 0, last = 0;         // parameters
  int64_t part = 0;                   // elements of a rank's part
  at::Tensor values, gradients, sum;  // [ranks * part], the same, [part]
};

class Stage : public heddle::ParallelStage {
 public:
  Stage(heddle::Units units, const heddle::DeviceMesh& mesh, std::span<const heddle::Placed> placed,
        int64_t bytes);
  heddle::Tensors forward(heddle::Tensors inputs, const heddle::Batch& batch) override;
  void unshard() override { unsharded_ = true; }
  void reshard() override {}
  void expect_last_backward() override;
  void reduce_gradients() override;
  void finish_gradients() override;
  std::span<heddle::Shard> owned() override;
  void parameters_changed(heddle::ParametersChange change) override;
  std::vector<heddle::WholeParameter> hold_whole() override;
  void release_whole() override;

 private:
  static bool is(Fault fault) { return fault == kFault; }

  void collect(std::span<const heddle::Placed> placed, c10::Device device);
  void add(const heddle::parallel::FlatBucket& flat, c10::Device device);
  void point(Parameter& parameter, const Bucket& bucket);
  void own(Parameter& parameter, const Bucket& bucket, int64_t from, int64_t to, bool late);
  void add_frozen();
  void refuse_nothing() const;
  void reduce();
  at::Tensor gradient_of(const Parameter& parameter) const;
  void reduce(Bucket& bucket, bool first);
  void scatter(Bucket& bucket);
  void give(const Parameter& parameter, const Bucket& bucket, size_t index);

  // What only faults need.
  void take_all();
  void watch_leaves();
  void watch_backward(const at::Tensor& output);

  heddle::Units units_;
  heddle::Communicator& group_;
  std::vector<Parameter> trained_, frozen_;
  std::vector<Bucket> buckets_;
  std::vector<heddle::Shard> owned_;
  at::Tensor used_;  // per trained parameter: 1 when a rank has a gradient
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  bool unsharded_ = false, last_ = false, filled_ = false, stepped_ = false;
  int64_t forwards_ = 0, started_ = 0, backwards_ = 0, changes_ = 0;
};

}  // namespace zero1
