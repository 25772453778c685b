// The stage of a rank that shares its parameters with others: gathers ahead, frees behind, reduces behind.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "heddle/parallel/backward_walk.h"
#include "reducer.h"
#include "stage.h"

namespace heddle::fsdp2 {

// Gathers run in the order of the forward, some units ahead, and in a backward in the reverse order.
// Reductions have a communicator of their own, because on a rank whose gradients are missing they come later
// than on others.
class ShardedStage : public ParallelStage, private BackwardWalk::Stops {
 public:
  ShardedStage(std::unique_ptr<Model> model, const Options& options, const DeviceMesh& mesh);

  Tensors forward(Tensors inputs, const Batch& batch) override;
  void unshard() override;
  void reshard() override;
  void expect_last_backward() override;
  void reduce_gradients() override;
  void finish_gradients() override;
  std::span<Shard> owned() override { return model_->shards; }
  void parameters_changed() override;
  std::vector<WholeParameter> hold_whole() override;
  void release_whole() override;

 private:
  using Run = Model::Run;
  std::vector<std::unique_ptr<Communicator>> add_scatters(const DeviceMesh& mesh) const;
  void make_equal(const Group& group);
  void refresh();
  void free_all();
  void begin_step();
  void watch_gradients();
  void start(Run& run);
  void finish(Run& run);
  void release_after_forward(size_t index, bool backward_comes);

  void approach(size_t unit) override;
  void enter(size_t unit) override;
  void complete(size_t bucket) override;
  void ended(WeightGradients* queue) override;
  void drained() override;
  void start_below(size_t unit);
  void end_microbatch();  // all its gradients are there
  bool may_free(const Group& group) const;

  std::unique_ptr<Model> model_;
  Options options_;
  DeviceMesh mesh_;                                      // holds the groups
  std::vector<std::unique_ptr<Communicator>> scatters_;  // for reductions, beside the groups that gather
  Reducer reducer_;
  Memory memory_;
  std::optional<model::Autocast> autocast_;  // casts for each use: whole parameters do not stay
  BackwardWalk walk_;                        // buckets: the model's gradients
  bool between_steps_ = true, last_backward_ = false, flushed_ = false;
  bool stale_ = true;  // parameters that every rank holds have changed
  bool held_ = false;  // whole until they are released
};

}  // namespace heddle::fsdp2
