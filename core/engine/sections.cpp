// Blocks are read, dropped or completed by what their plugins declare.
#include "core/engine/sections.h"
#include "core/engine/parallelizers.h"

#include <algorithm>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/schema.h"

namespace heddle::engine {
namespace {

std::string with_size(std::string text, int64_t size) {
  for (size_t at = text.find("{n}"); at != text.npos; at = text.find("{n}"))
    text.replace(at, 3, std::to_string(size));
  return text;
}

// An unknown key comes last.
int order_of(const AxisTable& table, const std::string& size_key) {
  const AxisInfo* axis = table.with_key(size_key);
  return axis == nullptr ? AxisInfo().read + 1 : axis->read;
}

// Returns the degree of the block's axis, or the largest one of its view if only another axis of it is used.
int degree_of(const Degrees& degrees, const std::string& size_key) {
  const AxisInfo* own = degrees.table().with_key(size_key);
  int degree = degrees.of_key(size_key);
  if (own == nullptr || own->view.empty() || degree > 1) return degree;
  for (const AxisInfo& axis : degrees.table().axes())
    if (axis.view == own->view && !axis.key.empty()) degree = std::max(degree, degrees.of(axis.name));
  return degree;
}

std::string key_location(const Node& section, const std::string& key) {
  const Node* given = section.find(key);
  return given == nullptr ? section.where() : given->where();
}

struct Environment {
  std::optional<std::string> backend;
  std::optional<double> timeout_minutes, heartbeat_seconds;
};

// In minutes: the range of a clock of 64 bits in nanoseconds, without timeouts that end at once.
std::string timeout_complaint(const std::string& key, const std::optional<double>& minutes) {
  constexpr double kLeast = 1e-3, kYear = 525'600;
  if (!minutes || (*minutes >= kLeast && *minutes <= kYear)) return "";
  if (*minutes <= 0) return key + " must be above 0";
  return key + " must be from 0.001 to 525600 (a year)";
}

std::string heartbeat_complaint(const std::optional<double>& seconds) {
  constexpr double kLeast = 3, kDay = 86'400;
  return !seconds || (*seconds >= kLeast && *seconds <= kDay)
             ? ""
             : "heartbeat_seconds must be from 3 to 86400 (a day)";
}

ConfigSchema<Environment> environment_schema(const PluginRegistry& plugins) {
  std::vector<std::string> backends = {"gloo", "nccl"};  // the recipes' values, whether available or not
  for (const std::string& name : plugins.names("device"))
    if (std::find(backends.begin(), backends.end(), name) == backends.end()) backends.push_back(name);
  return ConfigSchema<Environment>()
      .field("backend", &Environment::backend, "Who moves the bytes; null: chosen by the device.",
             OneOf{backends})
      .field("timeout_minutes", &Environment::timeout_minutes,
             "Time limit in minutes of a collective, and of the start of all ranks. null: 10.")
      .field("heartbeat_seconds", &Environment::heartbeat_seconds,
             "Time in seconds after which a machine is lost if no rank on it was heard. null: 60.")
      .rule(
          [](const Environment& read) { return timeout_complaint("timeout_minutes", read.timeout_minutes); })
      .rule([](const Environment& read) { return heartbeat_complaint(read.heartbeat_seconds); });
}

}  // namespace

Blocks find_blocks(const Node& section, const Degrees& degrees, PluginRegistry& plugins) {
  Blocks blocks;
  for (const std::string& name : plugins.names("section")) {
    const OfferedSection* offered = plugins.section(name);
    if (offered == nullptr) continue;
    const Node* given = section.find(name);
    const auto same =
        std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) { return b.offered == offered; });
    if (same != blocks.end() && given == nullptr) continue;
    if (same != blocks.end() && section.find(same->key) == nullptr) blocks.erase(same);
    const int degree = degree_of(degrees, offered->size_key);
    blocks.push_back({name, offered, given != nullptr && !given->is_null() ? given : nullptr, degree});
  }
  std::stable_sort(blocks.begin(), blocks.end(), [&](const Block& a, const Block& b) {
    return order_of(degrees.table(), a.offered->size_key) < order_of(degrees.table(), b.offered->size_key);
  });
  return blocks;
}

void drop_idle(Blocks& blocks, std::vector<std::string>& warnings) {
  for (Block& block : blocks) {
    if (block.degree > 1 || block.value == nullptr) continue;
    if (!block.offered->idle_warning.empty())
      warnings.push_back(with_size(block.offered->idle_warning, block.degree));
    block.value = nullptr;
  }
}

namespace {

std::string idle_warning(const Block& block) {
  const std::string& own = block.offered->idle_warning;
  return with_size(own.empty() ? "`distributed." + block.key + "` is set but " + block.offered->size_key +
                                     "={n} (<= 1): it has no effect. Set " + block.offered->size_key +
                                     " > 1 to use it."
                               : own,
                   block.degree);
}

// Fields that are given and have another value where the block acts at degree 1.
std::vector<std::string> without_effect(const Block& block, const Node& given, const Node& acts) {
  std::vector<std::string> out;
  for (const auto& [key, value] : block.value->entries()) {
    const Node *one = given.find(key), *other = acts.find(key);
    if (one != nullptr && other != nullptr && config::to_json(*one) != config::to_json(*other))
      out.push_back(key);
  }
  return out;
}

// Returns the fields of a block that act at degree 1; null: none.
Node resolve_idle(const Block& block, std::vector<std::string>& warnings) {
  if (block.value == nullptr) return Node();
  const Node given = block.offered->resolve(*block.value).values;
  const Node acts = block.offered->at_size_one ? block.offered->at_size_one(given) : Node();
  if (acts.is_null()) {
    warnings.push_back(idle_warning(block));
  } else if (const auto idle = without_effect(block, given, acts); !idle.empty()) {
    warnings.push_back("`distributed." + block.key + "`: " + text::join(idle, " and ") +
                       (idle.size() == 1 ? " has" : " have") + " no effect with " + block.offered->size_key +
                       "=" + std::to_string(block.degree));
  }
  return acts;
}

void resolve_block(const Block& block, const Node& section, Setup& setup) {
  if (block.degree <= 1) {
    setup.sections.emplace_back(block.offered->name, resolve_idle(block, setup.warnings));
    return;
  }
  if (block.value == nullptr && !block.offered->absent_error.empty())
    throw Error(ErrorCode::config, key_location(section, block.offered->size_key),
                with_size(block.offered->absent_error, block.degree));
  const Node empty = Node::map({}, section.mark(), "distributed." + block.key);
  Resolved resolved = block.offered->resolve(block.value != nullptr ? *block.value : empty);
  if (block.offered->derive && !setup.strategy.empty())
    resolved.values = block.offered->derive(resolved.values, setup.strategy_config, setup.warnings);
  setup.sections.emplace_back(block.offered->name, resolved.values);
  const std::string name = "distributed." + block.offered->name;
  for (const std::string& line : resolved.not_built) setup.not_built.push_back(name + "." + line);
  if (!block.offered->not_built.empty()) setup.not_built.push_back(name + ": " + block.offered->not_built);
}

}  // namespace

void resolve_blocks(const Blocks& blocks, const Node& section, Setup& setup) {
  Errors errors;
  for (const Block& block : blocks) errors.attempt([&] { resolve_block(block, section, setup); });
  errors.raise();
}

bool is_idle(const OfferedSection& section, const Setup& setup) {
  const AxisInfo* own = setup.axis_table.with_key(section.size_key);
  if (own == nullptr) return true;
  for (const AxisInfo& axis : setup.axis_table.axes()) {
    const bool same =
        axis.name == own->name || (!own->view.empty() && axis.view == own->view && !axis.key.empty());
    if (same && setup.sizes.of(axis.name) > 1) return false;
  }
  return true;
}

void note_what_comes_later(Setup& setup, PluginRegistry& plugins) {
  const auto note = [&](const std::string& key, const std::string& what) {
    setup.not_built.push_back("distributed." + key + ": " + what + " is not built yet");
  };
  for (const AxisInfo& axis : setup.axis_table.axes())
    if (axis.has_parallelizer && setup.sizes.of(axis.name) > 1 &&
        parallelizer_of(plugins, axis.name) == nullptr)
      note(axis.key, axis.parallelism);
  const AxisInfo& pipeline = *setup.axis_table.find(kPipelineAxis);
  if (setup.sizes.of(pipeline.name) > 1 && plugins.names("schedule").empty())
    note(pipeline.key, pipeline.parallelism);
}

void read_environment(const Node& configuration, Setup& setup, const PluginRegistry& plugins) {
  const Node* section = configuration.find("dist_env");
  if (section == nullptr || section->is_null()) return;
  const Environment read = environment_schema(plugins).read(*section);
  setup.backend = read.backend.value_or("");
  setup.timeout_minutes = read.timeout_minutes.value_or(setup.timeout_minutes);
  setup.heartbeat_seconds = read.heartbeat_seconds.value_or(setup.heartbeat_seconds);
}

}  // namespace heddle::engine
