// What one rank holds of a model: its stages, their positions in the pipeline, and the schedule that runs
// them.
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

// The whole pipeline, the same on every rank. By default one stage on one rank.
struct Pipeline {
  std::vector<int> rank_of_stage = {0};               // [stage] -> place on the axis pp
  std::shared_ptr<const IPipelineSchedule> schedule;  // null: "single", and a batch is one microbatch
  PipelineConfig config;
  std::optional<c10::ScalarType> dtype = std::nullopt;  // between stages; empty: that of the stages' outputs

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
};

// A module or a unit that is told of each update, and the full names of its own slots that do not train.
struct UpdateListener {
  AfterUpdate* told = nullptr;
  std::vector<std::string> frozen = {};
};

// What a run has besides its stages, on each rank.
struct Attached {
  std::vector<std::shared_ptr<IParallelizer>> parallelizers;  // in the order in which they acted
  std::vector<IParallelizer*> transforms;                     // those that change batches, in their order
  std::vector<UpdateListener> after_update;                   // in this rank's stages
  std::shared_ptr<const SideLayout> side_outputs;             // of the whole model; null: none
  int64_t most_tokens = 0;  // rows of the model's largest embedding: tokens are below; 0: not known
};

// The stages of this rank, in the order of the model.
class HEDDLE_API Stages {
 public:
  Stages() = default;  // a pipeline of one stage, which is added with push_back
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

  // Made by who runs the pipeline's schedule, for as long as it calls forward() of the stages; without one
  // forward() is refused where the pipeline has several stages.
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
  int rank() const { return rank_; }                            // on the axis pp
  const std::vector<int>& indices() const { return indices_; }  // [local] -> the stage's index in the model

  // The shards of all local stages, in execution order. Their addresses stay valid while the stages live.
  std::vector<Shard*> shards();

  // What hold_whole() of the local stages must return together: names and sizes after the parallelizers.
  // `strategy` and `where` are for messages.
  struct Whole {
    std::map<std::string, std::vector<int64_t>> sizes;
    std::string strategy, where;
    std::set<std::string> units = {};  // names of this rank's
  };
  // Set by parallel::build.
  void attach(Attached attached) { attached_ = std::move(attached); }
  const Attached& attached() const { return attached_; }
  // Lets the parallelizers change a batch, in their order. A host whose loop runs the stages itself calls it
  // for each batch, after it has counted the labels. Throws Error{input} for a batch whose members have not
  // the sizes of its tokens, [batch, sequence], or integers other than int64; Error{plugin_failed} with the
  // name of a parallelizer that changed the number of rows, or a tensor in place, or that gave a token that
  // no embedding of the model has.
  void transform(Batch& batch, const DeviceMesh& mesh) const;

  // In a dry world: the stages of other ranks, by their place in the model; null: not needed. Set by
  // parallel::build.
  void attach_elsewhere(DryRank& world, std::vector<std::unique_ptr<ParallelStage>> stages);
  // False: this is no dry world, or its pipeline has one rank.
  bool has_elsewhere() const { return world_ != nullptr; }
  // What another rank's stage hands to the next: tensors without values. Lists no collective.
  Tensors forward_elsewhere(int stage, Tensors inputs, const Batch& microbatch) const;

  void expect_whole(Whole whole) { whole_ = std::move(whole); }
  const std::optional<Whole>& whole() const { return whole_; }  // empty: unknown

 private:
  // Shared with the stages, as Stages may be moved.
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

// Whole parameters for the length of a scope.

// Gathers the parameters of a rank's stages and gives them back at the end of the scope, also when an
// exception ends it: for sampling without a gather for each token, and for reading parameters. Made between
// two steps, by all ranks of the strategy's axes; it does not nest. The stages outlive it. Throws
// Error{plugin_failed} where a strategy gives parts of parameters.
class HEDDLE_API Unsharded {
 public:
  explicit Unsharded(Stages& stages);
  ~Unsharded();
  Unsharded(const Unsharded&) = delete;
  Unsharded& operator=(const Unsharded&) = delete;

  // Every parameter of this rank's stages, a tied one once; valid in the scope.
  const std::vector<WholeParameter>& parameters() const { return parameters_; }

 private:
  Stages& stages_;
  std::vector<WholeParameter> parameters_;
};

}  // namespace heddle
