// The sharding engine: a stage that gathers parameters before use, frees them afterwards, and reduces
// gradients during the backward (ZeRO, Rajbhandari et al. 2020; FSDP of PyTorch and Megatron-Core).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/strategy.h"
#include "heddle/sharding/backward_walk.h"
#include "heddle/sharding/bucket.h"
#include "heddle/sharding/model.h"

namespace heddle::sharding {

class UsedParameters;

// No limit, for Lookahead and Policy.
inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max() / 2;

// Limits of prefetching: the number of units ahead of the running unit, and the elements of their gathers. 0
// in either disables prefetching.
struct Lookahead {
  int64_t units = 1, elements = kUnlimited;
};

// The choices of a strategy, equal on every rank.
struct Policy {
  Lookahead forward, backward;
  bool reduce_each_microbatch = false;  // false: once per step
  bool reduce_behind_backward = true;   // during the backward; false: at its end
  // Upper bounds on reductions in flight, in buckets and in elements. One bucket is always allowed.
  size_t buckets_in_flight = 2;
  int64_t elements_in_flight = kUnlimited;
  // Whether one small collective per step determines which parameters had a gradient on any rank
  // (Gradients::place).
  bool agree_on_used = true;
  enum class AfterUpdate { nothing, first_unit, all_units };
  AfterUpdate gather_after_update = AfterUpdate::nothing;
  bool wait_after_update = false;  // whether parameters_changed() waits for the gathers that it starts
};

// The stage of a sharded strategy. Use it directly, or derive from it to run units differently. Supports
// whole and split backwards, recomputed units, foreign units, tied parameters (gathered for each use, freed
// at the end of the backward), parameters that some ranks do not use, evaluation, and several microbatches.
// Errors have the model's strategy in `where`.
class ShardedStage : public ParallelStage, protected BackwardWalk::Stops {
 public:
  ShardedStage(Model model, const Policy& policy, const DeviceMesh& mesh, const Groups& groups);
  ~ShardedStage() override;  // waits for pending work, because a Work must not be dropped

  Tensors forward(Tensors inputs, const Batch& batch) override;
  // Forwards that a host drives. The first forward determines the order of units, with one small collective
  // per unit. Later forwards follow this order: a unit that this rank skips is still gathered here, and its
  // gradient counts as zero. Throws Error{input} for a unit that violates the order.
  bool can_host_forward() const override { return true; }
  void begin_forward(const Batch& batch) override;
  void before(size_t unit) override;
  void after(size_t unit, const Tensors& outputs) override;
  void end_forward() override;
  void abandon_forward() noexcept override;
  void finish_gradients() override;
  std::span<Shard> owned() override { return model_.shards; }
  void parameters_changed(ParametersChange change) override;
  void unshard() override;
  void reshard() override;
  void expect_last_backward() override { last_backward_ = true; }
  void reduce_gradients() override;
  bool can_restart() const override { return true; }
  void restart_step() override;
  std::vector<WholeParameter> hold_whole() override;
  void release_whole() override;

 protected:
  // Runs one unit, whose parameters are whole.
  virtual Tensors run(size_t unit, Tensors inputs, const Batch& batch);
  // Called when all gradients of a microbatch are complete.
  virtual void microbatch_complete() {}

  const Model& model() const { return model_; }
  const Policy& policy() const { return policy_; }

  void began() override;
  void reached_again(size_t turn) override;
  bool passed_forward(bool another) override;
  void approach(size_t unit) override;
  void enter(size_t unit) override;
  void complete(size_t bucket) override;
  void ended(WeightGradients* queue) override;
  void awaits(size_t bucket) override;
  void drained() override;

 private:
  using Turn = Model::Turn;
  struct HostForward;
  void watch_leaves();
  void begin_step();
  void check_gradients_may_come() const;
  void start(Bucket& bucket);
  void start(const Turn& turn);
  void finish(Bucket& bucket);
  void finish(const Turn& turn);
  void free(Bucket& bucket);
  void free_all();
  bool start_within(const Turn& turn, int64_t& elements);
  size_t gather_ahead(size_t unit);
  void gather_behind(size_t unit);
  void release_after_forward(size_t unit, size_t reached, bool backward_comes);
  bool may_free(const Bucket& bucket) const { return last_backward_ || !bucket.stays_; }
  void reduce_behind(Gradients& gradients);  // if reductions run during the backward
  void end_microbatch();                     // all its gradients are complete
  void open_forward(const Batch& batch);
  void open_gradients(const Turn& turn);

  // For forwards that a host drives.
  HostForward& host_forward(size_t unit) const;
  std::string quoted(size_t unit) const;
  bool recomputes() const;
  void recompute(size_t unit);
  void watch_recomputed(size_t unit, const Tensors& outputs);
  size_t last_turn(size_t unit) const;
  size_t next_turn(size_t unit) const;
  const Turn& find_turn(size_t unit, size_t turn) const;
  void learn(size_t unit);
  void free_unshared(const Turn& turn);
  void open_turn(size_t unit, size_t turn);
  void surround(size_t unit);
  void share_gradients(const Bucket& bucket);
  void close_turn();
  void enter_turn(size_t turn);
  void leave_turn(size_t turn);
  void make_up(size_t turn);
  void settle_order();
  void arrange_turns();

  DeviceMesh mesh_;  // keeps the groups alive
  Groups groups_;
  Model model_;
  Policy policy_;
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<UsedParameters> used_parameters_;  // null: buckets track this themselves
  std::vector<Gradients*> trained_;                  // the model's order before a host's forward
  BackwardWalk walk_;                                // its bucket indices are those of `trained_`
  std::unique_ptr<HostForward> host_;                // null: forward() runs the units
  size_t sharded_ = 0;                               // buckets in that state
  size_t passed_;                     // in a backward: units from here on are freed; 0: it begins again
  WeightGradients* queue_ = nullptr;  // queue of the current forward
  bool between_steps_ = true, last_backward_ = false, flushed_ = false;
  bool last_ended_ = false;  // the last backward of the step has ended
  bool held_ = false;        // whole until release_whole()
};

}  // namespace heddle::sharding
