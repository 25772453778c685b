// Stage of Megatron's data parallelism: the sharding engine over flat buckets.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "heddle/nn/weight_gradients.h"
#include "heddle/sharding/stage.h"
#include "model.h"

namespace heddle::megatron_fsdp {

// One implementation for all options. Parameters that are not split stay whole, and are gathered only after
// an update.
class Stage final : public sharding::ShardedStage {
 public:
  Stage(Units units, std::span<const Placed> placed, const Options& options, const DeviceMesh& mesh);

  Tensors forward(Tensors inputs, const Batch& batch) override;
  void finish_gradients() override;

 private:
  struct Parts;
  Stage(Parts parts, const DeviceMesh& mesh);
  WeightGradients* own_queue();
  void ended(WeightGradients* queue) override;
  void drained() override;
  void microbatch_complete() override;

  std::shared_ptr<Shared> shared_;
  std::deque<sharding::DoubleBuffer> double_buffers_;
  bool weights_last_;
  std::deque<WeightGradients> queues_;  // for weights_last
  std::vector<WeightGradients*> idle_queues_;
  int64_t microbatch_ = 0;
};

}  // namespace heddle::megatron_fsdp
