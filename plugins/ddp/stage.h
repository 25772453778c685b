// One rank's units with whole parameters; gradients are summed over the ranks behind the last backward.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "bucket.h"
#include "heddle/model/weight_gradients.h"
#include "heddle/sdk.h"

namespace heddle::ddp {

struct Options {
  int64_t first_bucket_bytes = 1 << 20;  // small, so that the first sum starts early
  int64_t bucket_bytes = 25 << 20;
  bool add_into_buckets =
      false;  // autograd adds into the buckets: no gradients beside them, one more pass to clear
};

class DdpStage : public ParallelStage {
 public:
  DdpStage(Units units, std::span<const Placed> placed, const DeviceMesh& mesh, const Options& options);

  Tensors forward(Tensors inputs, const Batch& batch) override;
  void unshard() override {}
  void reshard() override {}
  void expect_last_backward() override { last_backward_ = true; }
  void reduce_gradients() override;
  void finish_gradients() override;
  std::span<Shard> owned() override { return shards_; }
  void parameters_changed() override {}

 private:
  void take_parameters(std::span<const Placed> placed);
  void make_replicas_equal();
  void make_buckets();
  void begin_step();
  void watch(const Tensors& outputs, WeightGradients* queue);
  void gradient_arrived(Bucket& bucket);
  void begin_drain(const WeightGradients::Accumulators& leaves);
  void launch_full();
  void end_backward();

  Units units_;
  DeviceMesh mesh_;
  Options options_;
  Communicator* ranks_ = nullptr;  // null: one rank
  std::vector<Shard> shards_;
  std::vector<at::Tensor> foreign_;
  std::set<const void*> shared_;                  // parameters of several units
  std::vector<std::unique_ptr<Bucket>> buckets_;  // in the order of their launch
  std::vector<std::shared_ptr<torch::autograd::Node>>
      accumulators_;  // autograd itself holds them only weakly
  std::unordered_map<const torch::autograd::Node*, Bucket*> owners_;
  bool between_steps_ = true, last_backward_ = false;
  size_t launched_ = 0;
};

}  // namespace heddle::ddp
