// One rank's units with whole parameters; gradients are summed over the ranks behind the last backward.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/sdk.h"
#include "reducer.h"

namespace heddle::ddp {

// When rank 0's buffers go to the other ranks.
enum class Buffers { stay, from_rank_0 };

class DdpStage : public ParallelStage, public ReductionHints {
 public:
  // `autocast`: the dtype of the forward's products; empty: they run as they stand.
  DdpStage(Units units, std::span<const Placed> placed, const DeviceMesh& mesh, const Options& options,
           Buffers buffers, std::optional<at::ScalarType> autocast);

  Tensors forward(Tensors inputs, const Batch& batch) override;
  void expect_last_backward() override;
  void reduce_gradients() override;
  void finish_gradients() override;
  std::span<Shard> owned() override { return shards_; }
  void parameters_changed() override;

 private:
  void take_parameters(std::span<const Placed> placed);
  void take_buffers();
  void make_replicas_equal();
  std::vector<Leaf> leaves() const;
  void begin_step();
  void send_buffers();
  void watch(const Tensors& outputs, WeightGradients* queue);

  Units units_;
  DeviceMesh mesh_;
  Communicator* ranks_ = nullptr;  // null: one rank
  Buffers send_;
  std::optional<model::Autocast> autocast_;
  std::vector<Shard> shards_;
  std::vector<at::Tensor> foreign_, buffers_;
  std::set<const void*> shared_;    // parameters of several units
  std::optional<Reducer> reducer_;  // where there are several ranks
  bool between_steps_ = true, buffers_differ_ = false;
};

}  // namespace heddle::ddp
