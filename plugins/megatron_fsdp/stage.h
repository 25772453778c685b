// One rank's units under Megatron's data parallelism: gathers ahead, frees behind, reduces behind.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "heddle/parallel/backward_walk.h"
#include "model.h"
#include "presence.h"
#include "reducer.h"

namespace heddle::megatron_fsdp {

// Gathers run in the order of the forward, and in a backward in the reverse order. One body for all that may
// be split: what is never split is whole all the time, and its gathers and frees do nothing.
class Stage : public ParallelStage, private BackwardWalk::Stops {
 public:
  Stage(Units units, std::span<const Placed> placed, const Options& options, const Ranks& ranks,
        const DeviceMesh& mesh);
  ~Stage() override;

  Tensors forward(Tensors inputs, const Batch& batch) override;
  void unshard() override;
  void reshard() override;
  void expect_last_backward() override;
  void reduce_gradients() override;
  void finish_gradients() override;
  std::span<Shard> owned() override { return model_->shards; }
  void parameters_changed() override;
  double gradient_divisor() const override;
  std::vector<WholeParameter> hold_whole() override;
  void release_whole() override;

 private:
  using Run = Model::Run;
  void begin_step();
  void start(Run& run);
  void finish(Run& run);
  int64_t start_within(Run& run, int64_t room);  // what is left of the room; negative: it did not fit
  void gather_ahead(size_t index);
  void gather_behind(size_t index);
  void release_after_forward(size_t index);
  void free(Bucket& bucket);
  WeightGradients* own_queue();

  void approach(size_t unit) override;
  void enter(size_t unit) override;
  void complete(size_t bucket) override;
  void ended(WeightGradients* queue) override;
  void awaits(size_t bucket) override;
  void drained() override;
  void end_microbatch();  // all its gradients are there
  bool reduces(const Gradients& gradients) const { return last_backward_ || gradients.split(); }

  Options options_;
  DeviceMesh mesh_;
  Ranks ranks_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Reducer> reducer_;  // null: one rank
  Checks checks_;
  Presence presence_;
  int64_t room_ = 0;                    // elements that are gathered ahead
  BackwardWalk walk_;                   // buckets: the model's gradients
  std::deque<WeightGradients> queues_;  // of weights_last
  std::vector<WeightGradients*> idle_queues_;
  bool between_steps_ = true, last_backward_ = false, flushed_ = false, held_ = false;
  bool pending_ = true;  // some bucket that stays whole has not been gathered since the update
  int64_t microbatch_ = 0;
};

}  // namespace heddle::megatron_fsdp
