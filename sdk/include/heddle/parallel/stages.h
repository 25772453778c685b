// The stages of one rank, their positions in the pipeline, and the schedule that runs them.
#pragma once

#include <c10/core/ScalarType.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/parallel/strategy.h"
#include "heddle/schedule/schedule.h"

namespace heddle {

class AfterUpdate;
class DryRank;

// The whole pipeline, equal on every rank. By default one stage on one rank.
struct Pipeline {
  std::vector<int> rank_of_stage = {0};               // [stage] -> position on the axis pp
  std::shared_ptr<const IPipelineSchedule> schedule;  // null: "single", with one microbatch per batch
  PipelineConfig config;
  // Dtype between stages; empty: the dtype of the stages' outputs.
  std::optional<c10::ScalarType> dtype = std::nullopt;

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
};

// A module or unit with after_update(), and the full names of its own slots that do not train.
struct UpdateListener {
  AfterUpdate* told = nullptr;
  std::vector<std::string> frozen = {};
};

// Objects of a run besides its stages, on each rank.
struct Attached {
  std::vector<std::shared_ptr<IParallelizer>> parallelizers;  // in the order in which they acted
  std::vector<IParallelizer*> transforms;          // parallelizers with a transform(), in its order
  std::vector<UpdateListener> after_update;        // in this rank's stages
  std::shared_ptr<const SideLayout> side_outputs;  // layout of the whole model; null if there are none
  int64_t most_tokens = 0;  // rows of the model's largest embedding, above every token; 0 if unknown
};

// The stages of this rank, in the order of the model.
class HEDDLE_API Stages {
 public:
  Stages() = default;  // a pipeline of one stage, added with push_back()
  Stages(Pipeline pipeline, int rank);

  auto begin() { return stages_.begin(); }
  auto end() { return stages_.end(); }
  auto begin() const { return stages_.begin(); }
  auto end() const { return stages_.end(); }
  size_t size() const { return stages_.size(); }
  bool empty() const { return stages_.empty(); }
  std::unique_ptr<ParallelStage>& front() { return stages_.front(); }
  std::unique_ptr<ParallelStage>& operator[](size_t local) { return stages_[local]; }
  // Adds the next stage of indices().
  void push_back(std::unique_ptr<ParallelStage> stage) { stages_.push_back(std::move(stage)); }
  std::shared_ptr<const std::atomic<int>> running() const { return running_; }

  // A scope in which the runner of the pipeline's schedule calls forward() of the stages. Outside of it,
  // forward() throws if the pipeline has several stages.
  class HEDDLE_API Scheduled {
   public:
    explicit Scheduled(const Stages& stages);
    ~Scheduled();
    Scheduled(const Scheduled&) = delete;
    Scheduled& operator=(const Scheduled&) = delete;

   private:
    std::shared_ptr<std::atomic<int>> running_;
  };

  const Pipeline& pipeline() const { return pipeline_; }
  int rank() const { return rank_; }                            // position on the axis pp
  const std::vector<int>& indices() const { return indices_; }  // [local] -> index of the stage in the model

  // Returns the shards of all local stages, in execution order. Their addresses are valid as long as the
  // stages live.
  std::vector<Shard*> shards();

  // The expected result of hold_whole() over the local stages: parameter names, with sizes after the
  // parallelizers. strategy, where: for messages.
  struct Whole {
    std::map<std::string, std::vector<int64_t>> sizes;
    std::string strategy, where;
    std::set<std::string> units = {};  // names of this rank's units
  };
  // Set by parallel::build().
  void attach(Attached attached) { attached_ = std::move(attached); }
  const Attached& attached() const { return attached_; }
  // Applies the transforms of the parallelizers to a batch, in their order. A host with its own loop calls it
  // for each batch, after counting the labels. Throws Error{input} for a batch whose members do not have the
  // sizes of its tokens, [batch, sequence], or have an integer dtype other than int64. Throws
  // Error{plugin_failed}, naming the parallelizer, if it changed the number of rows, modified a tensor in
  // place, or set a token outside of every embedding of the model.
  void transform(Batch& batch, const DeviceMesh& mesh) const;

  // In a dry world, sets the stages of other ranks by their index in the model; null if not needed. Called by
  // parallel::build().
  void attach_elsewhere(DryRank& world, std::vector<std::unique_ptr<ParallelStage>> stages);
  // Returns whether this is a dry world whose pipeline has several ranks.
  bool has_elsewhere() const { return world_ != nullptr; }
  // Returns the output of another rank's stage, as tensors without values. Records no collective.
  Tensors forward_elsewhere(int stage, Tensors inputs, const Batch& microbatch) const;

  void expect_whole(Whole whole) { whole_ = std::move(whole); }
  const std::optional<Whole>& whole() const { return whole_; }  // empty if unknown

 private:
  // Shared with the stages, because Stages may be moved.
  std::shared_ptr<std::atomic<int>> running_ = std::make_shared<std::atomic<int>>(0);
  Attached attached_;  // outlives the stages, whose seams may call parallelizers
  Pipeline pipeline_;
  int rank_ = 0;
  std::vector<int> indices_ = {0};
  std::vector<std::unique_ptr<ParallelStage>> stages_;
  std::optional<Whole> whole_;
  DryRank* world_ = nullptr;
  std::vector<std::unique_ptr<ParallelStage>> elsewhere_;
};

// Access to whole parameters within a scope.

// Gathers the parameters of a rank's stages, and releases them at the end of the scope, also after an
// exception. For reading parameters, and for generation without a gather per token. Created between two steps
// by all ranks of the strategy's axes, not nested. The stages outlive it. Throws Error{plugin_failed} if a
// strategy returns parts of parameters.
class HEDDLE_API Unsharded {
 public:
  explicit Unsharded(Stages& stages);
  ~Unsharded();
  Unsharded(const Unsharded&) = delete;
  Unsharded& operator=(const Unsharded&) = delete;

  // Returns every parameter of this rank's stages, a tied parameter once. Valid within the scope.
  const std::vector<WholeParameter>& parameters() const { return parameters_; }

 private:
  Stages& stages_;
  std::vector<WholeParameter> parameters_;
};

}  // namespace heddle
