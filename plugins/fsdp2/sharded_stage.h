// The stage of a rank that shares its parameters with others: gathers ahead, frees behind, reduces behind.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "heddle/model/weight_gradients.h"
#include "reducer.h"
#include "stage.h"

namespace heddle::fsdp2 {

// Gathers run in the order of the forward, some units ahead, and in a backward in the reverse order.
// Reductions have a communicator of their own, because on a rank whose gradients are missing they come later
// than on others.
class ShardedStage : public ParallelStage {
 public:
  ShardedStage(std::unique_ptr<Model> model, const Options& options, const DeviceMesh& mesh,
               std::string_view axis);

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
  friend struct BackwardReached;
  void make_equal(const Group& group);
  void refresh();
  void free_all();
  void begin_step();
  void attach_gradient_hooks();
  void start(Run& run);
  void finish(Run& run);
  void release_after_forward(size_t index, bool backward_comes);
  bool watch(const Tensors& outputs, size_t index, WeightGradients* queue);

  void begin_backward(WeightGradients* queue);
  void before_backward(size_t index, WeightGradients* queue);  // a gradient of the unit's output has come
  void start_below(size_t index);
  void gradient_arrived(Gradients& gradients);
  void complete(Gradients& gradients);
  void end_backward();
  void begin_drain(const WeightGradients::Accumulators& leaves);
  void end_drain();
  void end_microbatch();  // all its gradients are there
  bool may_free(const Group& group) const;

  std::unique_ptr<Model> model_;
  Options options_;
  DeviceMesh mesh_;
  Communicator& shard_;
  Reducer reducer_;
  Memory memory_;
  std::optional<model::Autocast> autocast_;  // casts for each use: whole parameters do not stay
  std::unordered_map<const torch::autograd::Node*, Group*> owners_;  // of the leaves' accumulators
  bool between_steps_ = true, last_backward_ = false, flushed_ = false;
  bool stale_ = true;                         // parameters that every rank holds have changed
  bool held_ = false;                         // whole until they are released
  bool in_backward_ = false, split_ = false;  // split: its weight gradients come when a queue is drained
  bool draining_ = false;
  size_t unprepared_ = 0;  // in a backward: units below this one were not reached yet
};

}  // namespace heddle::fsdp2
