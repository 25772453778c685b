// The core's own stage around a strategy's: who failed, what finish_gradients() adds, what forward() refuses.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/parallel/built/tied_copies.h"
#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/plan.h"
#include "heddle/parallel/shard.h"
#include "heddle/parallel/stages.h"

namespace heddle::parallel {

// Whole parameters whose gradient each rank of an axis holds a part of (Shard::partial): norms over split
// tokens or split heads. One flat all_reduce for each axis and dtype, after the strategy has finished the
// gradients and before their norm is measured (Megatron's finalize_model_grads).
class HEDDLE_API PartialSums {
 public:
  // The shards must outlive this and not move; those without partial axes are ignored. Takes the
  // shards of all stages of a rank.
  PartialSums(std::span<Shard* const> shards, const DeviceMesh& mesh);

  // A collective of every rank. Gradients stay where they are and hold the sums; one that no rank has stays
  // undefined.
  void add();

 private:
  struct Entry {
    Shard* shard;
    at::Tensor part;   // its place in the buffer
    bool had = false;  // this rank had a gradient
  };
  struct Sum {  // one axis and dtype
    Communicator* ranks = nullptr;
    at::ScalarType dtype = at::kFloat;
    std::vector<Entry> entries;
    at::Tensor buffer, counts;  // counts: the last elements, how many ranks had each gradient
  };
  Sum& sum_of(Communicator& ranks, at::ScalarType dtype);
  static void lay_out(Sum& sum);
  static void add(Sum& sum);

  std::vector<Sum> sums_;  // in the order of the shards' axes
};

// A strategy's stage as Stages hold it. Costs one more virtual call for each call of the stage.
// - What the stage throws carries the name of the strategy's plugin. A heddle::Error is passed on; so are
//   LibTorch's errors out of forward(), which mostly come from the units that the stage runs.
// - finish_gradients() adds the sums of partial gradients (Shard::partial) and of copies of tied parameters,
//   so that every loop gets them.
// - forward() of one of several stages of a pipeline is refused outside of a schedule.
class BuiltStage final : public ParallelStage {
 public:
  BuiltStage(std::unique_ptr<ParallelStage> inner, const Plan& plan, const Stages& stages);

  // Called when the shards have their final addresses. `tied`: null if another stage adds the copies.
  void complete(const DeviceMesh& mesh, std::shared_ptr<TiedCopies> tied);

  Tensors forward(Tensors inputs, const Batch& batch) override;
  void finish_gradients() override;
  std::span<Shard> owned() override;
  void parameters_changed(ParametersChange change) override;
  std::vector<StateTensor> state() override;
  void unshard() override;
  void reshard() override;
  void expect_last_backward() override;
  void reduce_gradients() override;
  bool can_restart() const override { return inner_->can_restart(); }
  void restart_step() override;
  std::vector<WholeParameter> hold_whole() override;
  void release_whole() override { inner_->release_whole(); }
  bool can_host_forward() const override { return pipeline_ == 1 && inner_->can_host_forward(); }
  void begin_forward(const Batch& batch) override;
  void before(size_t unit) override;
  void after(size_t unit, const Tensors& outputs) override;
  void end_forward() override;
  void abandon_forward() noexcept override { inner_->abandon_forward(); }
  UnitPrecision unit_precision(size_t unit) const override { return inner_->unit_precision(unit); }
  std::optional<at::ScalarType> autocast() const override { return inner_->autocast(); }

 private:
  template <class Call>
  auto named(const char* function, Call&& call) const;

  Author author_;
  std::string strategy_;
  bool recomputes_;  // activation_checkpointing
  std::unique_ptr<ParallelStage> inner_;
  std::shared_ptr<TiedCopies> tied_;
  std::shared_ptr<const std::atomic<int>> running_;
  int pipeline_;
  std::optional<PartialSums> partial_;
};

}  // namespace heddle::parallel
