// The offers of a plugin: strategies, parallelizers, schedules, sections, devices, plans and models. Each
// plugin kind is a struct with the kind's name.
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

// Defined in heddle/plugin/optimizer.h, transform.h, metrics.h and dataset.h.
struct OfferedOptimizer;
struct OfferedTransform;
struct OfferedMetrics;
struct OfferedDataset;
struct TextSource;

// A section read by its schema, without the struct type.
struct Resolved {
  Node values;                         // every field, with its given value or default
  std::vector<std::string> not_built;  // "key: why" for each later() field that is not built
};

// The common members of every offer, the base of each kind.
struct HEDDLE_API OfferedSchema {
  virtual ~OfferedSchema();
  OfferedSchema() = default;
  OfferedSchema(const OfferedSchema&) = default;
  OfferedSchema& operator=(const OfferedSchema&) = default;
  // Returns the requirements on a run, or null for a kind without requirements.
  virtual const Needs* stated_needs() const { return nullptr; }

  std::string name;
  std::vector<std::string> aliases;  // further names in YAML
  std::vector<FieldInfo> fields;     // for `heddle plugins inspect`
  std::function<Resolved(const Node& section)> resolve;
  std::string not_built;  // if not empty: fields are read, but this feature is not built
};

// A data-parallel strategy. Its fields are keys of `distributed:`.
struct OfferedStrategy : OfferedSchema {
  static constexpr const char* kKind = "strategy";
  const Needs* stated_needs() const override { return &needs; }
  Needs needs;
  std::function<std::unique_ptr<IStrategy>(const Node& section)> make;
};

// A parallelizer for an axis, or for batches.
struct OfferedParallelizer : OfferedSchema {
  static constexpr const char* kKind = "parallelizer";
  const Needs* stated_needs() const override { return &needs; }
  Needs needs;
  std::string plan_key;  // the field that may name an offered plan; empty: none
  // Fields that the strategy also has and that only act if an axis has more than one rank. Setting such a
  // field without that is a warning. Setting it while another parallelizer, which lacks the field, splits the
  // axis is an error.
  std::vector<std::string> axis_fields = {};
  std::function<std::unique_ptr<IParallelizer>(const Node& section)> make;
};

// A pipeline schedule. It has no fields.
struct OfferedSchedule : OfferedSchema {
  static constexpr const char* kKind = "schedule";
  std::function<std::unique_ptr<IPipelineSchedule>()> make;
};

// A section of `distributed:` that acts if a degree of parallelism is above 1, such as "pipeline" with
// pp_size. At size 1 it is still read and checked, with a warning that it has no effect.
struct OfferedSection : OfferedSchema {
  static constexpr const char* kKind = "section";
  std::string size_key;  // "pp_size"
  // If not empty: the error for a size above 1 without the section ({n} is the size).
  std::string absent_error;
  std::string idle_warning;  // the warning at size 1 ({n} is the size); empty: the engine's text
  // Returns the fields that act even at size 1, with the other fields at their defaults, or null if no field
  // does. The parallelizer of the axis is then created with these fields. Empty: no field acts at size 1.
  std::function<Node(const Node& resolved)> at_size_one;
  // Fields that override the strategy's field of the same name if the strategy's field is null. A field with
  // the default null overrides it whenever the section sets the field.
  std::vector<std::string> strategy_fields;
  // Sets fields that depend on the strategy's resolved fields, and may add warnings. May be empty.
  std::function<Node(Node section, const Node& strategy_config, std::vector<std::string>& warnings)> derive;
  // Converts the resolved fields of the section of "pp_size" to core's PipelineConfig. Empty for other
  // sections.
  std::function<PipelineConfig(const Node& resolved)> pipeline;
};

// A device and its communication. Its names are values of dist_env.backend. Without that key the first
// available device is used.
struct OfferedDevice : OfferedSchema {
  static constexpr const char* kKind = "device";
  std::function<std::unique_ptr<IDevice>()> make;
};

// A named plan for the field OfferedParallelizer::plan_key: patterns of module paths with styles. `resolve`
// ignores its argument and returns the plan. The fields are its entries.
struct OfferedPlan : OfferedSchema {
  static constexpr const char* kKind = "plan";
};

// A model family. Its name and aliases are values of model_type in a config.json. The fields are the other
// keys that it reads, with defaults. `resolve` is empty.
struct OfferedModel : OfferedSchema {
  static constexpr const char* kKind = "model";
  std::function<std::unique_ptr<IModelFamily>()> make;
};

// One entry of an offer.
struct OfferedThing {
  std::string kind;                       // "strategy"
  std::shared_ptr<OfferedSchema> schema;  // an object of the struct of this kind
};

// The offer that the plugin's entry function fills. The registry admits all entries or none.
class HEDDLE_API Offer {
 public:
  // Offers a strategy that is constructed as Strategy(Config). Its Needs are those of Strategy(Config{}).
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

  // Offers a parallelizer that is constructed as Parallelizer(Config).
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

  // Offers a default-constructed schedule.
  template <class Schedule>
  OfferedSchedule& schedule(std::string name) {
    OfferedSchedule offered;
    offered.name = std::move(name);
    offered.make = []() -> std::unique_ptr<IPipelineSchedule> { return std::make_unique<Schedule>(); };
    return add(std::move(offered));
  }

  // Offers a section of `distributed:` that acts if `size_key` is above 1.
  template <class Config>
  OfferedSection& section(std::string name, std::string size_key, ConfigSchema<Config> schema) {
    OfferedSection offered;
    fill(offered, std::move(name), schema);
    offered.size_key = std::move(size_key);
    return add(std::move(offered));
  }

  // Offers a default-constructed device.
  template <class Device>
  OfferedDevice& device(std::string name) {
    OfferedDevice offered;
    offered.name = std::move(name);
    offered.make = []() -> std::unique_ptr<IDevice> { return std::make_unique<Device>(); };
    return add(std::move(offered));
  }

  // Offers a plan: pairs of a pattern of module paths and a style.
  OfferedPlan& plan(std::string name, const std::vector<std::pair<std::string, std::string>>& styles) {
    OfferedPlan offered;
    offered.name = std::move(name);
    std::vector<Node::Entry> entries;
    for (const auto& [pattern, style] : styles) {
      offered.fields.push_back({pattern, "style", style, "", "Style of these modules.", ""});
      entries.emplace_back(pattern, Node::text(style));
    }
    offered.resolve = [map = Node::map(std::move(entries))](const Node&) { return Resolved{map, {}}; };
    return add(std::move(offered));
  }

  // Offers a default-constructed model family. keys: the keys that it reads.
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

  // Offers a class with the constructor Optimizer(Config), Transform(Config) or Metrics(Config). The plugin
  // includes the header of the kind, heddle/plugin/KIND.h.
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
  // Offers a class with the constructor Dataset(Config, const Node& section, const DataFacts&), which uses
  // the section for locations in errors. length_key: see OfferedDataset::length_key.
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
  // Offers tokenized texts, which a script prepares. The fields of the schema are the arguments of the
  // script.
  template <class Config, class Texts = TextSource, class Offered = OfferedDataset>
  Offered& texts(std::string name, const ConfigSchema<Config>& schema, Texts source) {
    Offered offered;
    fill(offered, std::move(name), schema);
    offered.make = Offered::unprepared;
    offered.texts = std::move(source);
    return add(std::move(offered));
  }

  // Adds an offer of any kind.
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
