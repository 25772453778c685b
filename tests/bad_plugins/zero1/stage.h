// ZeRO-1 (Rajbhandari et al. 2020) in its simplest form: every rank holds all parameters, and each rank owns
// and updates one part of every bucket. kFault selects one fault.
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
  at::Tensor leaf;             // the model's parameter
  heddle::Shard whole;         // has no tensor
  int64_t begin = 0, end = 0;  // range in the bucket
  size_t first_shard = 0, shards = 0;
  at::Tensor taken;  // gradient that a fault took too early
};

struct Bucket {
  size_t first = 0, last = 0;         // range of parameters
  int64_t part = 0;                   // elements per rank
  at::Tensor values, gradients, sum;  // sizes [ranks * part], [ranks * part], [part]
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

  // Helpers of single faults.
  void take_all();
  void watch_leaves();
  void watch_backward(const at::Tensor& output);

  heddle::Units units_;
  heddle::Communicator& group_;
  std::vector<Parameter> trained_, frozen_;
  std::vector<Bucket> buckets_;
  std::vector<heddle::Shard> owned_;
  at::Tensor used_;  // per trained parameter: 1 if any rank has a gradient
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  bool unsharded_ = false, last_ = false, filled_ = false, stepped_ = false;
  int64_t forwards_ = 0, started_ = 0, backwards_ = 0, changes_ = 0;
};

}  // namespace zero1
