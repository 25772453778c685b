// Stage of one rank with whole parameters, whose gradients are summed over the ranks during the last
// backward.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/sdk.h"
#include "reducer.h"

namespace heddle::ddp {

// Whether rank 0 broadcasts its buffers.
enum class Buffers { stay, from_rank_0 };

class DdpStage : public ParallelStage {
 public:
  // `autocast`: autocast dtype of the forward. Empty: no autocast.
  DdpStage(Units units, std::span<const Placed> placed, const DeviceMesh& mesh, const Options& options,
           Buffers buffers, std::optional<at::ScalarType> autocast);

  Tensors forward(Tensors inputs, const Batch& batch) override;
  bool can_host_forward() const override { return true; }
  void begin_forward(const Batch& batch) override;
  void before(size_t unit) override;
  void after(size_t unit, const Tensors& outputs) override;
  void end_forward() override { in_forward_ = false; }
  void abandon_forward() noexcept override { in_forward_ = false; }
  std::optional<at::ScalarType> autocast() const override;
  void expect_last_backward() override;
  void reduce_gradients() override;
  void finish_gradients() override;
  std::span<Shard> owned() override { return shards_; }
  void parameters_changed(ParametersChange change) override;
  bool can_restart() const override { return true; }
  void restart_step() override { between_steps_ = true; }

 private:
  void take_parameters(std::span<const Placed> placed);
  void take_buffers();
  void make_replicas_equal();
  std::vector<Leaf> leaves(const Reduction& reduction) const;
  Communicator* ranks_of(const Reduction& reduction) const;  // null if there is one rank
  void begin_step();
  void send_buffers();
  void begin_backward(std::span<const std::weak_ptr<torch::autograd::Node>> roots, WeightGradients* queue);
  void end_backward();

  Units units_;
  DeviceMesh mesh_;
  Reductions reductions_;
  Communicator* ranks_ = nullptr;  // group of dense parameters; null if there is one rank
  Buffers send_;
  std::optional<model::Autocast> autocast_;
  std::vector<Shard> shards_;
  std::vector<std::pair<at::Tensor, Communicator*>> valued_;  // parameters that already have values
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> unsummed_;                // trainable parameters that one rank holds
  std::set<const void*> shared_;                    // parameters that several units share
  std::vector<std::unique_ptr<Reducer>> reducers_;  // one per set of axes with several ranks
  using Roots = std::vector<std::weak_ptr<torch::autograd::Node>>;
  std::shared_ptr<Roots> roots_;      // autograd nodes of the forward's outputs
  WeightGradients* queue_ = nullptr;  // queue of the current forward
  bool between_steps_ = true, buffers_differ_ = false, in_forward_ = false, in_backward_ = false;
};

}  // namespace heddle::ddp
