// Thin wrappers around what a plugin makes, for calls that happen once in a run.
#include "core/plugin/admitted.h"

#include <utility>

#include "core/plugin/named_model.h"
#include "core/plugin/named_seams.h"
#include "core/plugin/named_stage.h"
#include "core/schedule/check.h"
#include "heddle/schedule/simulate.h"

namespace heddle::plugin {
namespace {

class NamedStrategy : public IStrategy {
 public:
  NamedStrategy(Author author, std::unique_ptr<IStrategy> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}
  Needs needs() const override { return inner_->needs(); }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed> placed) override {
    return name_stage(author_, guarded_but_errors(author_, "parallelized the model", [&] {
                        return inner_->parallelize(std::move(units), mesh, placed);
                      }));
  }

 private:
  Author author_;
  std::unique_ptr<IStrategy> inner_;
};

class NamedParallelizer : public IParallelizer {
 public:
  NamedParallelizer(Author author, std::unique_ptr<IParallelizer> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}
  Needs needs() const override { return inner_->needs(); }
  void check(Units& units, const Sizes& sizes) override {
    guarded_but_errors(author_, "checked the model", [&] { inner_->check(units, sizes); });
  }
  void check_device(bool on_cpu) const override {
    guarded_but_errors(author_, "checked the device", [&] { inner_->check_device(on_cpu); });
  }
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override {
    const NamedSeams seams(units);
    std::vector<Placed> placed =
        guarded_but_errors(author_, "split the model", [&] { return inner_->apply(units, mesh); });
    seams.name(units, author_);
    return placed;
  }
  std::string name() const override { return author_.name; }
  std::optional<int> transform_order() const override {
    return guarded_but_errors(author_, "told its transform_order()",
                              [&] { return inner_->transform_order(); });
  }
  void transform(Batch& batch, const DeviceMesh& mesh) override {
    guarded_but_errors(author_, "changed a batch", [&] { inner_->transform(batch, mesh); });
  }
  std::vector<SideOutput*> side_outputs() override {
    return guarded_but_errors(author_, "told its side outputs", [&] { return inner_->side_outputs(); });
  }
  void after_update(const Updated& updated, const DeviceMesh& mesh) override {
    guarded_but_errors(author_, "changed its buffers after an update",
                       [&] { inner_->after_update(updated, mesh); });
  }

 private:
  Author author_;
  std::unique_ptr<IParallelizer> inner_;
};

// A plugin's schedule, with or without times; without times both functions give the same plan.
class NamedSchedule : public ITimedSchedule {
 public:
  NamedSchedule(Author author, std::unique_ptr<IPipelineSchedule> inner)
      : author_(std::move(author)),
        inner_(std::move(inner)),
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
    return guarded_but_errors(author_, "placed a stage",
                              [&] { return inner_->rank_of(stage, ranks, stages); });
  }
  StagesPerRank stages_per_rank() const override {
    return guarded_but_errors(author_, "told its stages", [&] { return inner_->stages_per_rank(); });
  }

 private:
  template <class Make>
  ScheduleTable checked(int ranks, int stages, int microbatches, const Make& make) const {
    ScheduleTable table = guarded_but_errors(author_, "planned a schedule", make);
    schedule::check(table, schedule::placement(*this, ranks, stages, author_.file.string()), microbatches,
                    author_.file.string(), schedule::Purpose::training, ErrorCode::plugin_failed);
    return table;
  }

  Author author_;
  std::unique_ptr<IPipelineSchedule> inner_;
  const ITimedSchedule* timed_;  // the same, or null
};

class NamedDevice : public IDevice {
 public:
  NamedDevice(Author author, std::unique_ptr<IDevice> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}
  std::string absent() const override {
    return guarded_but_errors(author_, "looked for its device", [&] { return inner_->absent(); });
  }
  c10::Device start(int local_rank) override {
    return guarded_but_errors(author_, "started its device", [&] { return inner_->start(local_rank); });
  }
  std::unique_ptr<Rendezvous> wrap(Rendezvous& host) override {
    return guarded_but_errors(author_, "made its meeting", [&] { return inner_->wrap(host); });
  }
  DeviceMemory memory() const override { return inner_->memory(); }
  std::string name() const override { return inner_->name(); }
  void synchronize() override { inner_->synchronize(); }

 private:
  Author author_;
  std::unique_ptr<IDevice> inner_;
};

std::vector<std::string> aliases_of(const PluginManifest& manifest, const std::string& kind,
                                    const std::string& name) {
  for (const ManifestOffer& offer : manifest.offers)
    if (offer.kind == kind && offer.name == name) return offer.aliases;
  return {};
}

// A maker that never returns null and whose product carries the plugin's name.
template <class Named, class Make>
Make named(const Author& author, const std::string& thing, const Make& make) {
  if (!make) return make;
  return [author, thing, make](const auto&... section) {
    return guarded_but_errors(author, "made " + thing, [&]() -> typename Make::result_type {
      auto made = make(section...);
      if (!made) blame(author, "made " + thing, "it gave a null pointer");
      return std::make_unique<Named>(author, std::move(made));
    });
  };
}

// The names of the manifest, and a schema and a maker with the plugin's name.
template <class Named, class Offered>
std::vector<Offered> take_kind(std::vector<Offered> all, const std::string& kind,
                               const PluginManifest& manifest, const Author& author) {
  for (Offered& offered : all) {
    const std::string thing = "the " + kind + " '" + offered.name + "'";
    offered.aliases = aliases_of(manifest, kind, offered.name);
    if (offered.resolve)
      offered.resolve = [author, thing, resolve = offered.resolve](const Node& section) {
        return guarded_but_errors(author, "read the section of " + thing, [&] { return resolve(section); });
      };
    if constexpr (!std::is_void_v<Named>) offered.make = named<Named>(author, thing, offered.make);
  }
  return all;
}

}  // namespace

AdmittedPlugin take(const Offer& offer, const PluginManifest& manifest, const Author& author) {
  return {take_kind<NamedStrategy>(offer.strategies(), "strategy", manifest, author),
          take_kind<NamedParallelizer>(offer.parallelizers(), "parallelizer", manifest, author),
          take_kind<NamedSchedule>(offer.schedules(), "schedule", manifest, author),
          take_kind<void>(offer.sections(), "section", manifest, author),
          take_kind<NamedDevice>(offer.devices(), "device", manifest, author),
          take_kind<void>(offer.plans(), "plan", manifest, author),
          take_kind<NamedModelFamily>(offer.models(), "model", manifest, author)};
}

}  // namespace heddle::plugin
