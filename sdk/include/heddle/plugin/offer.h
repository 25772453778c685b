// What a plugin offers: strategies, parallelizers, schedules, sections, devices, plans and models.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/schema.h"
#include "heddle/mesh/device.h"
#include "heddle/model/family.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/parallel/strategy.h"
#include "heddle/schedule/schedule.h"

namespace heddle {

// A section read by its schema, with its struct forgotten.
struct Resolved {
  Node values;                         // every field, with its default or given value
  std::vector<std::string> not_built;  // "key: why", where a later() field is not at its default
};

// Common to everything on offer.
struct OfferedSchema {
  std::string name;
  std::vector<std::string> aliases;  // other words for it in the YAML
  std::vector<FieldInfo> fields;     // for `heddle plugins inspect`
  std::function<Resolved(const Node& section)> resolve;
  std::string
      not_built;  // not empty: its fields exist, its execution does not; the text says what is missing
};

struct OfferedStrategy : OfferedSchema {
  Needs needs;
  std::function<std::unique_ptr<IStrategy>(const Node& section)> make;
};

struct OfferedParallelizer : OfferedSchema {
  Needs needs;
  std::string plan_key;  // the field where a word stands for a plan on offer; empty: there is none
  std::function<std::unique_ptr<IParallelizer>(const Node& section)> make;
};

struct OfferedSchedule : OfferedSchema {
  std::function<std::unique_ptr<IPipelineSchedule>()> make;
};

// A block under `distributed:` that works when a degree of parallelism is above 1 ("pipeline" with pp_size).
struct OfferedSection : OfferedSchema {
  std::string size_key;      // "pp_size"
  std::string absent_error;  // not empty: size above 1 without the block is this error ({n} is the size)
  std::string idle_warning;  // the block is dropped at size 1; not empty: with this warning ({n} is the size)
  // Fills what depends on the strategy's resolved fields; may add warnings. May be empty.
  std::function<Node(Node section, const Node& strategy_config, std::vector<std::string>& warnings)> derive;
  // Of the section of "pp_size": what its resolved fields ask of core. Empty for every other section.
  std::function<PipelineConfig(const Node& resolved)> pipeline;
};

// A device, and the communication between its memories. Its names are the words of dist_env.backend; without
// one, the first device that is there is taken.
struct OfferedDevice : OfferedSchema {
  std::function<std::unique_ptr<IDevice>()> make;
};

// A map with a name, for the field OfferedParallelizer::plan_key: patterns of module paths and their styles.
// `resolve` gives the map, whatever it gets; the fields are its entries.
struct OfferedPlan : OfferedSchema {};

// A family of models. Its name and aliases are the values of model_type in a config.json; the fields are the
// keys that are read besides, with their defaults; there is no `resolve`.
struct OfferedModel : OfferedSchema {
  std::function<std::unique_ptr<IModelFamily>()> make;
};

// The plugin's entry function fills one; the registry admits all of it or none.
class HEDDLE_API Offer {
 public:
  // Strategy is made from its Config: Strategy(Config). The Needs are asked of one made from the defaults.
  template <class Strategy, class Config>
  OfferedStrategy& strategy(std::string name, ConfigSchema<Config> schema) {
    OfferedStrategy offered;
    fill(offered, std::move(name), schema);
    offered.needs = Strategy(Config{}).needs();
    offered.make = [schema](const Node& section) -> std::unique_ptr<IStrategy> {
      return std::make_unique<Strategy>(schema.read(section));
    };
    return strategies_.emplace_back(std::move(offered));
  }

  template <class Parallelizer, class Config>
  OfferedParallelizer& parallelizer(std::string name, ConfigSchema<Config> schema) {
    OfferedParallelizer offered;
    fill(offered, std::move(name), schema);
    offered.needs = Parallelizer(Config{}).needs();
    offered.make = [schema](const Node& section) -> std::unique_ptr<IParallelizer> {
      return std::make_unique<Parallelizer>(schema.read(section));
    };
    return parallelizers_.emplace_back(std::move(offered));
  }

  template <class Schedule>
  OfferedSchedule& schedule(std::string name) {
    OfferedSchedule offered;
    offered.name = std::move(name);
    offered.make = []() -> std::unique_ptr<IPipelineSchedule> { return std::make_unique<Schedule>(); };
    return schedules_.emplace_back(std::move(offered));
  }

  template <class Config>
  OfferedSection& section(std::string name, std::string size_key, ConfigSchema<Config> schema) {
    OfferedSection offered;
    fill(offered, std::move(name), schema);
    offered.size_key = std::move(size_key);
    return sections_.emplace_back(std::move(offered));
  }

  template <class Device>
  OfferedDevice& device(std::string name) {
    OfferedDevice offered;
    offered.name = std::move(name);
    offered.make = []() -> std::unique_ptr<IDevice> { return std::make_unique<Device>(); };
    return devices_.emplace_back(std::move(offered));
  }

  OfferedPlan& plan(std::string name, const std::vector<std::pair<std::string, std::string>>& styles) {
    OfferedPlan offered;
    offered.name = std::move(name);
    std::vector<Node::Entry> entries;
    for (const auto& [pattern, style] : styles) {
      offered.fields.push_back({pattern, "style", style, "", "What becomes of these modules.", ""});
      entries.emplace_back(pattern, Node::text(style));
    }
    offered.resolve = [map = Node::map(std::move(entries))](const Node&) { return Resolved{map, {}}; };
    return plans_.emplace_back(std::move(offered));
  }

  template <class Family>
  OfferedModel& model(std::string model_type, std::vector<FieldInfo> keys) {
    OfferedModel offered;
    offered.name = std::move(model_type);
    offered.fields = std::move(keys);
    offered.make = []() -> std::unique_ptr<IModelFamily> { return std::make_unique<Family>(); };
    return models_.emplace_back(std::move(offered));
  }

  const std::vector<OfferedStrategy>& strategies() const { return strategies_; }
  const std::vector<OfferedParallelizer>& parallelizers() const { return parallelizers_; }
  const std::vector<OfferedSchedule>& schedules() const { return schedules_; }
  const std::vector<OfferedSection>& sections() const { return sections_; }
  const std::vector<OfferedDevice>& devices() const { return devices_; }
  const std::vector<OfferedPlan>& plans() const { return plans_; }
  const std::vector<OfferedModel>& models() const { return models_; }

 private:
  template <class Config>
  static void fill(OfferedSchema& offered, std::string name, const ConfigSchema<Config>& schema) {
    offered.name = std::move(name);
    offered.fields = schema.fields();
    offered.resolve = [schema](const Node& section) {
      const Config config = schema.read(section);
      return Resolved{schema.write(config), schema.not_built(config)};
    };
  }

  std::vector<OfferedStrategy> strategies_;
  std::vector<OfferedParallelizer> parallelizers_;
  std::vector<OfferedSchedule> schedules_;
  std::vector<OfferedSection> sections_;
  std::vector<OfferedDevice> devices_;
  std::vector<OfferedPlan> plans_;
  std::vector<OfferedModel> models_;
};

}  // namespace heddle
