// From checked fields to plugins that agree, and the fingerprint by which ranks find out that they differ.
#include "core/engine/pipeline.h"
#include "core/engine/sections.h"
#include "heddle/engine/engine.h"

namespace heddle::engine {
namespace {

// The device of that name. Throws if it is not available.
std::unique_ptr<IDevice> device_named(const Setup& setup, PluginRegistry& plugins) {
  const std::string where = setup.configuration.find("dist_env")->find("backend")->where();
  const std::string for_cpu = "write gloo, or null, to train on the CPU";
  const OfferedDevice* offered = plugins.device(setup.backend);
  if (offered == nullptr)
    throw Error(ErrorCode::plugin_missing, where, plugins.missing("device", setup.backend).message(),
                "build heddle where that device's toolkit is; or " + for_cpu);
  std::unique_ptr<IDevice> device = offered->make();
  if (const std::string why = device->absent(); !why.empty())
    throw Error(ErrorCode::config, where, "backend '" + setup.backend + "' is not available: " + why,
                for_cpu);
  return device;
}

// Without a name in the file: the first available device.
std::unique_ptr<IDevice> device_there(PluginRegistry& plugins) {
  for (const std::string& name : plugins.names("device")) {
    std::unique_ptr<IDevice> device = plugins.device(name)->make();
    if (device->absent().empty()) return device;
  }
  return nullptr;
}

// The file that the strategy came from; empty: the engine itself.
std::string file_of_strategy(const std::string& name, const PluginRegistry& plugins) {
  for (const PluginInfo& info : plugins.loaded())
    for (const std::string& offer : info.offers)
      if (offer == "strategy " + name || offer.starts_with("strategy " + name + " "))
        return info.path.string();
  return "";
}

// Returns the strategy's fields with those that blocks set (OfferedSection::strategy_fields): AutoModel's
// moe.reshard_after_forward and moe.mp_policy.
Node with_fields_of_blocks(const Setup& setup, PluginRegistry& plugins) {
  Node fields = setup.strategy_config;
  for (const auto& [name, values] : setup.sections) {
    const OfferedSection* offered = plugins.section(name);
    if (!values.is_map() || offered == nullptr || is_idle(*offered, setup)) continue;
    const Node defaults = offered->resolve(Node::map({})).values;
    for (const std::string& key : offered->strategy_fields) {
      const Node* value = values.find(key);
      const Node* own = setup.strategy_config.find(key);
      const Node* usual = defaults.find(key);
      if (own == nullptr || value == nullptr || value->is_null()) continue;
      if (own->is_null() || (usual != nullptr && usual->is_null())) fields = fields.with(key, *value);
    }
  }
  return fields;
}

}  // namespace

std::unique_ptr<IDevice> choose_device(const Setup& setup, PluginRegistry& plugins) {
  if (setup.backend == "gloo") return nullptr;
  return setup.backend.empty() ? device_there(plugins) : device_named(setup, plugins);
}

Plan choose(const Setup& setup, PluginRegistry& plugins) {
  refuse_not_built(setup.configuration, setup.not_built);
  const OfferedStrategy* strategy = plugins.strategy(setup.strategy);
  if (strategy == nullptr)
    throw Error(ErrorCode::plugin_missing, "distributed.strategy",
                "no plugin offers '" + setup.strategy + "'");
  if (!strategy->not_built.empty())
    throw Error(ErrorCode::not_built, "distributed.strategy", setup.strategy + ": " + strategy->not_built,
                "train with one of the strategies that are built; `heddle plugins list` names them");
  Plan plan;
  plan.strategy = strategy->make(with_fields_of_blocks(setup, plugins));
  plan.strategy_name = strategy->name;
  plan.strategy_file = file_of_strategy(strategy->name, plugins);
  plan.activation_checkpointing = setup.activation_checkpointing;
  for (const auto& [name, section] : setup.parallelizers) {
    plan.parallelizers.push_back(plugins.parallelizer(name)->make(section));
    plan.parallelizer_names.push_back(name);
  }
  add_pipeline(plan, setup, plugins);
  plan.device = choose_device(setup, plugins);
  return plan;
}

namespace {

// One line for each field, so that the error can name the field that differs.
void add_fields(std::string& lines, const std::string& prefix, const Node& section) {
  for (const auto& [key, value] : section.entries())
    lines += prefix + key + ": " + config::to_json(value) + "\n";
}

}  // namespace

std::string fingerprint(const Setup& setup, const PluginRegistry& plugins, const std::string& extra) {
  std::string lines = "distributed.strategy: " + setup.strategy + "\n";
  for (const AxisInfo& axis : setup.axis_table.axes())
    if (!axis.key.empty())
      lines += "size of " + axis.name + ": " + std::to_string(setup.sizes.of(axis.name)) + "\n";
  add_fields(lines, "distributed.", setup.strategy_config);
  for (const auto* sections : {&setup.sections, &setup.parallelizers})
    for (const auto& [name, section] : *sections) add_fields(lines, "distributed." + name + ".", section);
  constexpr const char* kCheckpointing[] = {"false", "full", "selective"};
  lines += std::string("distributed.activation_checkpointing: ") +
           kCheckpointing[static_cast<int>(setup.activation_checkpointing)] +
           "\ndist_env.timeout_minutes: " + std::to_string(setup.timeout_minutes) +
           "\ndist_env.heartbeat_seconds: " + std::to_string(setup.heartbeat_seconds) +
           "\ndist_env.backend: " + setup.backend + "\n" + plugins.fingerprint();
  return extra.empty() ? lines : lines + "\n" + extra;
}

}  // namespace heddle::engine
