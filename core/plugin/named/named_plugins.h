// Thin wrappers around what plugins make, for calls that happen once in a run: what these throw carries the
// plugin's name.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/named/named_model.h"
#include "core/plugin/named/named_object.h"
#include "core/plugin/named/named_seams.h"
#include "core/schedule/check.h"
#include "heddle/plugin/offer.h"
#include "heddle/schedule/simulate.h"

namespace heddle::plugin {

class NamedStrategy : public NamedObject<IStrategy> {
 public:
  using NamedObject::NamedObject;
  Needs needs() const override { return inner_->needs(); }
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
