// What a plugin offers: strategies, parallelizers, schedules, sections, devices, plans and models. A kind of
// plugin is a struct with the word of its kind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/schema.h"
#include "heddle/mesh/device.h"
#include "heddle/model/config_keys.h"
#include "heddle/model/family.h"
#include "heddle/parallel/needs.h"
#include "heddle/parallel/parallelizer.h"
#include "heddle/parallel/strategy.h"
#include "heddle/schedule/schedule.h"

namespace heddle {

// Defined in headers of their own: heddle/plugin/optimizer.h, transform.h, metrics.h and dataset.h.
struct OfferedOptimizer;
struct OfferedTransform;
struct OfferedMetrics;
struct OfferedDataset;
struct TextSource;

// A section read by its schema, independent of the struct.
struct Resolved {
  Node values;                         // every field, with its default or given value
  std::vector<std::string> not_built;  // "key: why" for each later() field that is not at its default
};

// Common to everything offered; the base of each kind.
struct HEDDLE_API OfferedSchema {
  virtual ~OfferedSchema();
  OfferedSchema() = default;
  OfferedSchema(const OfferedSchema&) = default;
  OfferedSchema& operator=(const OfferedSchema&) = default;
  // What it needs of a run; null: a kind without needs.
  virtual const Needs* stated_needs() const { return nullptr; }

  std::string name;
  std::vector<std::string> aliases;  // other names in the YAML
  std::vector<FieldInfo> fields;     // for `heddle plugins inspect`
  std::function<Resolved(const Node& section)> resolve;
  std::string
      not_built;  // not empty: the fields are read, but the execution is not built; says what is missing
};

struct OfferedStrategy : OfferedSchema {
  static constexpr const char* kKind = "strategy";
  const Needs* stated_needs() const override { return &needs; }
  Needs needs;
  std::function<std::unique_ptr<IStrategy>(const Node& section)> make;
};

struct OfferedParallelizer : OfferedSchema {
  static constexpr const char* kKind = "parallelizer";
  const Needs* stated_needs() const override { return &needs; }
  Needs needs;
  std::string plan_key;  // the field in which the name of an offered plan is allowed; empty: none
  // Fields that the strategy has too and that act only where an axis has more than one rank: one that is
  // given without that is a warning; one that is given where another parallelizer, which lacks it, splits the
  // axis is an error.
  std::vector<std::string> axis_fields = {};
  std::function<std::unique_ptr<IParallelizer>(const Node& section)> make;
};

struct OfferedSchedule : OfferedSchema {
  static constexpr const char* kKind = "schedule";
  std::function<std::unique_ptr<IPipelineSchedule>()> make;
};

// A block under `distributed:` that acts if a degree of parallelism is above 1 ("pipeline" with pp_size). At
// size 1 it is read and checked too, with a warning that it has no effect.
struct OfferedSection : OfferedSchema {
  static constexpr const char* kKind = "section";
  std::string size_key;      // "pp_size"
  std::string absent_error;  // not empty: the error for a size above 1 without the block ({n} is the size)
  std::string idle_warning;  // the warning at size 1 ({n} is the size); empty: the engine's own words
  // What acts at size 1 too: from the block's fields to the same with those at their default that do not, or
  // null where none is left. The parallelizer of the axis is then made with these. Empty: nothing acts.
  std::function<Node(const Node& resolved)> at_size_one;
  // Fields of the block that set the strategy's field of the same name: where that is null, and, if the
  // block's own default is null, wherever the block gives a value.
  std::vector<std::string> strategy_fields;
  // Sets fields that depend on the strategy's resolved fields; may add warnings. May be empty.
  std::function<Node(Node section, const Node& strategy_config, std::vector<std::string>& warnings)> derive;
  // For the section of "pp_size": its resolved fields as core's PipelineConfig. Empty for every other
  // section.
  std::function<PipelineConfig(const Node& resolved)> pipeline;
};

// A device and its communication. Its names are values of dist_env.backend; if that is not set, the first
// available device is used.
struct OfferedDevice : OfferedSchema {
  static constexpr const char* kKind = "device";
  std::function<std::unique_ptr<IDevice>()> make;
};

// A named map for the field OfferedParallelizer::plan_key: patterns of module paths and their styles.
// `resolve` ignores its argument and returns the map; the fields are its entries.
struct OfferedPlan : OfferedSchema {
  static constexpr const char* kKind = "plan";
};

// A family of models. Its name and aliases are the values of model_type in a config.json; the fields are the
// other keys that it reads, with their defaults; `resolve` is empty.
struct OfferedModel : OfferedSchema {
  static constexpr const char* kKind = "model";
  std::function<std::unique_ptr<IModelFamily>()> make;
};

// One thing on offer.
struct OfferedThing {
  std::string kind;                       // "strategy"
  std::shared_ptr<OfferedSchema> schema;  // of the type that has this kind
};

// Filled by the plugin's entry function; the registry admits all of it or none.
class HEDDLE_API Offer {
 public:
  // The strategy is constructed as Strategy(Config). Its Needs are read from one with the defaults.
  template <class Strategy, class Config>
  OfferedStrategy& strategy(std::string name, ConfigSchema<Config> schema) {
    OfferedStrategy offered;
    fill(offered, std::move(name), schema);
    offered.needs = Strategy(Config{}).needs();
    offered.make = [schema](const Node& section) -> std::unique_ptr<IStrategy> {
      return std::make_unique<Strategy>(schema.read(section));
    };
    return add(std::move(offered));
  }

  template <class Parallelizer, class Config>
  OfferedParallelizer& parallelizer(std::string name, ConfigSchema<Config> schema) {
    OfferedParallelizer offered;
    fill(offered, std::move(name), schema);
    offered.needs = Parallelizer(Config{}).needs();
    offered.make = [schema](const Node& section) -> std::unique_ptr<IParallelizer> {
      return std::make_unique<Parallelizer>(schema.read(section));
    };
    return add(std::move(offered));
  }

  template <class Schedule>
  OfferedSchedule& schedule(std::string name) {
    OfferedSchedule offered;
    offered.name = std::move(name);
    offered.make = []() -> std::unique_ptr<IPipelineSchedule> { return std::make_unique<Schedule>(); };
    return add(std::move(offered));
  }

  template <class Config>
  OfferedSection& section(std::string name, std::string size_key, ConfigSchema<Config> schema) {
    OfferedSection offered;
    fill(offered, std::move(name), schema);
    offered.size_key = std::move(size_key);
    return add(std::move(offered));
  }

  template <class Device>
  OfferedDevice& device(std::string name) {
    OfferedDevice offered;
    offered.name = std::move(name);
    offered.make = []() -> std::unique_ptr<IDevice> { return std::make_unique<Device>(); };
    return add(std::move(offered));
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
    return add(std::move(offered));
  }

  template <class Family>
  OfferedModel& model(std::string model_type, std::vector<FieldInfo> keys) {
    OfferedModel offered;
    offered.name = std::move(model_type);
    offered.fields = std::move(keys);
    offered.make = []() -> std::unique_ptr<IModelFamily> { return std::make_unique<Family>(); };
    return add(std::move(offered));
  }

  template <class Family, class Config>
  OfferedModel& model(std::string model_type, const model::ModelKeys<Config>& keys) {
    return model<Family>(std::move(model_type), keys.table());
  }

  // Kinds with a header of their own (heddle/plugin/KIND.h), which the plugin includes. Each is constructed
  // as Thing(Config); a data set as Dataset(Config, const Node& section, const DataFacts&), whose section is
  // for the places of errors.
  template <class Optimizer, class Config, class Offered = OfferedOptimizer>
  Offered& optimizer(std::string name, const ConfigSchema<Config>& schema) {
    return made<Offered, Optimizer>(std::move(name), schema);
  }
  template <class Transform, class Config, class Offered = OfferedTransform>
  Offered& transform(std::string name, const ConfigSchema<Config>& schema) {
    return made<Offered, Transform>(std::move(name), schema);
  }
  template <class Metrics, class Config, class Offered = OfferedMetrics>
  Offered& metrics(std::string name, const ConfigSchema<Config>& schema) {
    return made<Offered, Metrics>(std::move(name), schema);
  }
  // length_key: OfferedDataset::length_key.
  template <class Dataset, class Config, class Offered = OfferedDataset>
  Offered& dataset(std::string name, const ConfigSchema<Config>& schema, std::string length_key = "") {
    Offered offered;
    fill(offered, std::move(name), schema);
    offered.length_key = std::move(length_key);
    offered.make = [schema](const Node& section, const auto& facts) {
      return std::make_unique<Dataset>(schema.read(section), section, facts);
    };
    return add(std::move(offered));
  }
  // A data set of texts, which a script prepares; the schema's fields are the script's arguments.
  template <class Config, class Texts = TextSource, class Offered = OfferedDataset>
  Offered& texts(std::string name, const ConfigSchema<Config>& schema, Texts source) {
    Offered offered;
    fill(offered, std::move(name), schema);
    offered.make = Offered::unprepared;
    offered.texts = std::move(source);
    return add(std::move(offered));
  }

  // Of any kind.
  template <class Offered>
  Offered& add(Offered offered) {
    auto schema = std::make_shared<Offered>(std::move(offered));
    Offered& out = *schema;
    things_.push_back({Offered::kKind, std::move(schema)});
    return out;
  }

  const std::vector<OfferedThing>& things() const { return things_; }

 private:
  template <class Offered, class Thing, class Config>
  Offered& made(std::string name, const ConfigSchema<Config>& schema) {
    Offered offered;
    fill(offered, std::move(name), schema);
    offered.make = [schema](const Node& section) { return std::make_unique<Thing>(schema.read(section)); };
    return add(std::move(offered));
  }

  template <class Config>
  static void fill(OfferedSchema& offered, std::string name, const ConfigSchema<Config>& schema) {
    offered.name = std::move(name);
    offered.fields = schema.fields();
    offered.resolve = [schema](const Node& section) {
      const Config config = schema.read(section);
      return Resolved{schema.write(config), schema.not_built(config)};
    };
  }

  std::vector<OfferedThing> things_;
};

}  // namespace heddle
