// Thin wrappers around what plugins make, for calls that happen once in a run: what these throw carries the
// plugin's name.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/parallel/attributed.h"
#include "core/schedule/check.h"
#include "heddle/data/dataset.h"
#include "heddle/model/family.h"
#include "heddle/model/module.h"
#include "heddle/model/unit.h"
#include "heddle/plugin/metrics.h"
#include "heddle/plugin/offer.h"
#include "heddle/plugin/optimizer.h"
#include "heddle/plugin/transform.h"
#include "heddle/schedule/simulate.h"

namespace heddle::plugin {

// Is an Interface and holds an Inner, which is mostly one too.
template <class Interface, class Inner = Interface>
class NamedObject : public Interface {
 public:
  NamedObject(Author author, std::unique_ptr<Inner> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}

 protected:
  // Adds the plugin's name to exceptions of the call; passes on a heddle::Error.
  template <class Call>
  auto named(std::string_view doing, Call&& call) const {
    return attributed(author_, doing, call);
  }

  Author author_;
  std::unique_ptr<Inner> inner_;
};

// Recorded before apply(), which adds to the seams.
class NamedSeams {
 public:
  explicit NamedSeams(const Units& units);
  // Wraps what was added since.
  void name(const Units& units, const Author& author) const;

 private:
  std::map<const Seam*, size_t> before_;
};

// A heddle::Error is passed on as it is. A null spec is an error.
class NamedModelFamily : public NamedObject<IModelFamily> {
 public:
  using NamedObject::NamedObject;
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override;
  std::vector<Node::Entry> automodel_keys(const std::string& model_type) const override;
};

class NamedMetrics : public NamedObject<IMetrics> {
 public:
  using NamedObject::NamedObject;
  void start(const MetricsRun& run) override {
    attributed(
        author_, "started its metrics", [&] { inner_->start(run); }, Keep::nothing);
  }
  void record(const MetricsRecord& record) override {
    attributed(
        author_, "took a record of metrics", [&] { inner_->record(record); }, Keep::nothing);
  }
  void finish() override {
    attributed(
        author_, "finished its metrics", [&] { inner_->finish(); }, Keep::nothing);
  }
};

class NamedDataset : public NamedObject<IDataset> {
 public:
  using NamedObject::NamedObject;
  int64_t size() const override {
    return named("counted its samples", [&] { return inner_->size(); });
  }
  int64_t length(int64_t sample) const override {
    return named("told a sample's length", [&] { return inner_->length(sample); });
  }
  int64_t row_length() const override {
    return named("told its rows' length", [&] { return inner_->row_length(); });
  }
  void read(int64_t sample, const SampleTarget& to) const override {
    named("read a sample", [&] { inner_->read(sample, to); });
  }
  std::string digest() const override {
    return named("made a digest of its content", [&] { return inner_->digest(); });
  }
  int64_t longest() const override {
    return named("looked for its longest sample", [&] { return inner_->longest(); });
  }
  bool is_uneven() const override { return inner_->is_uneven(); }
  bool has_documents() const override { return inner_->has_documents(); }
  bool labels_follow() const override { return inner_->labels_follow(); }
  bool sequential() const override { return inner_->sequential(); }
  bool uses_seed() const override { return inner_->uses_seed(); }
  std::map<std::string, std::string> settings() const override {
    return named("told its settings", [&] { return inner_->settings(); });
  }
  DataTokenizer tokenizer() const override {
    return named("told its tokenizer", [&] { return inner_->tokenizer(); });
  }
  std::vector<DataInput> inputs() const override {
    return named("listed its files", [&] { return inner_->inputs(); });
  }
  bool verify(DataNotes& notes) const override {
    return named("checked its content", [&] { return inner_->verify(notes); });
  }
};

// Costs one more virtual call for each update.
class NamedOptimizer : public NamedObject<IOptimizer> {
 public:
  NamedOptimizer(Author author, std::string name, std::unique_ptr<IOptimizer> inner);
  void start(std::span<const TrainedShard> shards, const DeviceMesh& mesh) override;
  std::vector<OptimizerState> state() override;
  void update(const OptimizerUpdate& update) override;
  bool takes_divisor_and_skip() const override { return inner_->takes_divisor_and_skip(); }
  bool can_undo() const override { return inner_->can_undo(); }
  std::string name() const override { return name_; }

 private:
  std::string name_;
};

class NamedTransform : public NamedObject<ITransform> {
 public:
  using NamedObject::NamedObject;
  // Throws Error{plugin_failed} where the units are not as the result says.
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override {
    return named("told its setting", [&] { return inner_->setting(); });
  }
};

class NamedStrategy : public NamedObject<IStrategy> {
 public:
  using NamedObject::NamedObject;
  Needs needs() const override {
    return named("told its needs", [&] { return inner_->needs(); });
  }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override {
    const char* const doing = "parallelized the model";
    auto stage = named(doing, [&] { return inner_->parallelize(std::move(units), mesh, placed); });
    if (!stage) throw_named(author_, doing, "it gave a null pointer");
    return stage;
  }
  Author author() const override { return author_; }
};

class NamedParallelizer : public NamedObject<IParallelizer> {
 public:
  using NamedObject::NamedObject;
  Needs needs() const override { return inner_->needs(); }
  void check(Units& units, const Sizes& sizes) override {
    named("checked the model", [&] { inner_->check(units, sizes); });
  }
  void check_device(bool on_cpu) const override {
    named("checked the device", [&] { inner_->check_device(on_cpu); });
  }
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override {
    const NamedSeams seams(units);
    std::vector<Placed> placed = named("split the model", [&] { return inner_->apply(units, mesh); });
    seams.name(units, author_);
    return placed;
  }
  std::string name() const override { return author_.name; }
  std::optional<int> transform_order() const override {
    return named("told its transform_order()", [&] { return inner_->transform_order(); });
  }
  void transform(Batch& batch, const DeviceMesh& mesh) override {
    named("changed a batch", [&] { inner_->transform(batch, mesh); });
  }
  std::vector<SideOutput*> side_outputs() override {
    return named("told its side outputs", [&] { return inner_->side_outputs(); });
  }
  void after_update(const Updated& updated, const DeviceMesh& mesh) override {
    named("changed its buffers after an update", [&] { inner_->after_update(updated, mesh); });
  }
};

// A plugin's schedule, with or without times; without times both functions give the same plan.
class NamedSchedule : public NamedObject<ITimedSchedule, IPipelineSchedule> {
 public:
  NamedSchedule(Author author, std::unique_ptr<IPipelineSchedule> inner)
      : NamedObject(std::move(author), std::move(inner)),
        timed_(dynamic_cast<const ITimedSchedule*>(inner_.get())) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    return checked(ranks, stages, microbatches, [&] { return inner_->plan(ranks, stages, microbatches); });
  }
  ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured& measured) const override {
    if (timed_ == nullptr) return plan(ranks, stages, microbatches);
    return checked(ranks, stages, microbatches,
                   [&] { return timed_->plan_for(ranks, stages, microbatches, measured); });
  }
  bool plans_for_times() const override { return timed_ != nullptr && timed_->plans_for_times(); }
  int rank_of(int stage, int ranks, int stages) const override {
    return named("placed a stage", [&] { return inner_->rank_of(stage, ranks, stages); });
  }
  StagesPerRank stages_per_rank() const override {
    return named("told its stages", [&] { return inner_->stages_per_rank(); });
  }

 private:
  template <class Make>
  ScheduleTable checked(int ranks, int stages, int microbatches, const Make& make) const {
    ScheduleTable table = named("planned a schedule", make);
    schedule::check(table, schedule::placement(*this, ranks, stages, author_.file.string()), microbatches,
                    author_.file.string(), schedule::Purpose::training, ErrorCode::plugin_failed);
    return table;
  }

  const ITimedSchedule* timed_;  // the same, or null
};

class NamedDevice : public NamedObject<IDevice> {
 public:
  using NamedObject::NamedObject;
  std::string absent() const override {
    return named("looked for its device", [&] { return inner_->absent(); });
  }
  c10::Device start(int local_rank) override {
    return named("started its device", [&] { return inner_->start(local_rank); });
  }
  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override {
    return named("made its rendezvous", [&] { return inner_->wrap(host); });
  }
  DeviceMemory memory() const override { return inner_->memory(); }
  std::string name() const override { return inner_->name(); }
  void synchronize() override { inner_->synchronize(); }
};

}  // namespace heddle::plugin
