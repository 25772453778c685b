// From the tree to checked fields: the sections `distributed:` and `dist_env:` against a number of ranks.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/engine/degrees.h"
#include "core/engine/parallelizers.h"
#include "core/engine/sections.h"
#include "core/parallel/features.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/axes.h"
#include "heddle/config/node.h"
#include "heddle/engine/engine.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {
namespace {

// The engine's axes; if the section has another key `*_size`, also those of every offered parallelizer.
// Throws Error{plugin_*}, also for two plugins that mean different axes by one name.
AxisTable axes_for(const Node& section, PluginRegistry& plugins) {
  AxisTable table;
  const auto& entries = section.entries();
  const bool asks = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.first.ends_with("_size") && table.with_key(entry.first) == nullptr;
  });
  if (!asks) return table;
  std::set<std::string> added;
  for (const std::string& name : plugins.names("parallelizer")) {
    const OfferedParallelizer* offered = plugins.parallelizer(name);
    if (offered == nullptr || !added.insert(offered->name).second) continue;  // by an alias
    table.add(offered->needs.new_axes, offered->needs.new_views, "the parallelizer '" + offered->name + "'");
  }
  return table;
}

// The keys of the sizes of all axes that parallelizers bring, for messages; a plugin that cannot be opened
// has none.
std::vector<std::string> axis_keys_of_plugins(PluginRegistry& plugins) {
  std::vector<std::string> keys;
  Errors ignored;  // the message is about another error
  for (const std::string& name : plugins.names("parallelizer"))
    ignored.attempt([&] {
      const OfferedParallelizer* offered = plugins.parallelizer(name);
      if (offered == nullptr) return;
      for (const AxisInfo& axis : offered->needs.new_axes)
        if (!axis.key.empty()) keys.push_back(axis.key);
    });
  return keys;
}

const std::string kSelective(kSelectiveCheckpointing);

// A missing section, null and an empty list mean the defaults.
Node distributed_of(const Node& configuration) {
  const Mark file{configuration.mark().file, 0, 0};
  if (!configuration.is_map() && !configuration.is_null())
    throw Error(ErrorCode::config, configuration.where(),
                "expected a map of sections, got " + configuration.written());
  const Node* section = configuration.find("distributed");
  if (section == nullptr) return Node::map({}, file, "distributed");
  if (section->is_null() || (section->is_list() && section->size() == 0))
    return Node::map({}, section->mark(), "distributed");
  if (!section->is_map())
    throw Error(ErrorCode::config, section->where(), "expected a map, got " + section->written());
  return *section;
}

std::string strategy_word(const Node& section) {
  const Node* node = section.find("strategy");
  if (node == nullptr || node->is_null()) return HEDDLE_DEFAULT_STRATEGY;
  if (node->kind() != Node::Kind::text)
    throw Error(ErrorCode::config, node->where(), "strategy must be a word or null, got " + node->written());
  return text::lower(node->as_text());
}

ActivationCheckpointing checkpointing_of(const Node& section) {
  const Node* node = section.find("activation_checkpointing");
  if (node == nullptr || node->is_null()) return ActivationCheckpointing::none;
  if (node->kind() == Node::Kind::boolean)
    return node->as_boolean() ? ActivationCheckpointing::full : ActivationCheckpointing::none;
  if (node->kind() == Node::Kind::text) {
    const std::string word = text::lower(node->as_text());
    if (has({"false", "off", "none", "disabled", "no"}, word)) return ActivationCheckpointing::none;
    if (has({"true", "on", "full", "enabled", "yes"}, word)) return ActivationCheckpointing::full;
    if (word == "selective") return ActivationCheckpointing::selective;
  }
  throw Error(
      ErrorCode::config, node->where(),
      "distributed.activation_checkpointing must be a boolean or one of 'full', 'selective', 'false'.",
      "got " + node->written());
}

// The names of the plugins' strategies for which the predicate is true.
template <class Holds>
std::vector<std::string> strategies_that(PluginRegistry& plugins, Holds holds) {
  const std::vector<std::string> known = plugins.names("strategy");
  std::vector<std::string> names;
  for (const OfferedStrategy* offered : plugins.all_strategies())
    if (has(known, offered->name) && holds(*offered)) names.push_back(offered->name);
  std::sort(names.begin(), names.end());
  return names;
}

void check_selective(const Node& section, const OfferedStrategy& offered, PluginRegistry& plugins) {
  if (has(offered.needs.may_use, kSelective)) return;
  const auto able =
      strategies_that(plugins, [](const auto& other) { return has(other.needs.may_use, kSelective); });
  throw Error(
      ErrorCode::config, section.find("activation_checkpointing")->where(),
      "selective activation checkpointing is supported only for " + text::join(able, " and ") + " configs.",
      "write 'full', or choose one of these strategies");
}

[[noreturn]] void unknown_strategy(const std::string& word, const Node& section,
                                   const PluginRegistry& plugins) {
  const std::vector<std::string> names = plugins.names("strategy");
  const Node* node = section.find("strategy");
  const std::string near = text::nearest(word, names);
  std::vector<std::string> search_path;
  for (const auto& place : plugins.search_path()) search_path.push_back(place.string());
  throw Error(ErrorCode::plugin_missing, node != nullptr ? node->where() : section.where(),
              "Unknown strategy: " + text::excerpt(word) + ". Valid strategies: " + python_list(names),
              (near.empty() ? "" : "did you mean '" + near + "'? ") +
                  "'single' is built in; plugins were looked for in " + text::join(search_path));
}

// The keys of the strategy itself: all but core's keys and the blocks.
Node strategy_keys(const Node& section, const Blocks& blocks, const BatchPlugins& batch_plugins,
                   const AxisTable& table) {
  Node rest = section;
  for (const BatchPlugin& plugin : batch_plugins) rest = rest.without(plugin.key);
  for (const char* key : {"strategy", "activation_checkpointing", "_target_", "_recursive_", "_convert_"})
    rest = rest.without(key);
  for (const AxisInfo* axis : table.in_order_of_reading()) rest = rest.without(axis->key);
  for (const Block& block : blocks) rest = rest.without(block.key);
  return rest;
}

// Throws for keys that the strategy does not have, and removes them.
void check_options(Node& options, const std::string& word, const OfferedStrategy& offered,
                   const Blocks& blocks, const AxisTable& table, PluginRegistry& plugins) {
  std::vector<std::string> known;
  for (const FieldInfo& field : offered.fields) known.push_back(field.key);
  std::vector<std::string> unknown;
  for (const auto& [key, value] : options.entries())
    if (!has(known, key)) unknown.push_back(key);
  if (unknown.empty()) return;
  std::sort(unknown.begin(), unknown.end());
  for (const AxisInfo* axis : table.in_order_of_reading()) known.push_back(axis->key);
  known.insert(known.end(), {"strategy", "activation_checkpointing"});
  for (const Block& block : blocks) known.push_back(block.key);
  for (std::string& key : axis_keys_of_plugins(plugins)) known.push_back(std::move(key));
  const std::string near = text::nearest(unknown.front(), known);
  const std::string where = options.find(unknown.front())->where();
  std::vector<Node::Entry> rest;
  for (const Node::Entry& entry : options.entries())
    if (!std::binary_search(unknown.begin(), unknown.end(), entry.first)) rest.push_back(entry);
  options = Node::map(std::move(rest), options.mark(), options.path());
  throw Error(ErrorCode::config, where,
              "Unknown options for strategy '" + word + "': " + python_list(unknown),
              near.empty() ? "`heddle plugins inspect " + offered.name + "` prints the keys"
                           : "did you mean '" + near + "'?");
}

// Sizes, and the meshes that they make.
void resolve_mesh(const Node& section, const Degrees& degrees, const OfferedStrategy& offered, int world_size,
                  PluginRegistry& plugins, Setup& setup) {
  Asking asking{section, offered.name, {}};
  for (const AxisInfo& axis : setup.axis_table.axes())
    if (axis.kind == AxisKind::copies && degrees.of(axis.name) > 1)
      asking.replicating =
          strategies_that(plugins, [&](const auto& s) { return has(s.needs.axes, axis.name); });
  setup.sizes = resolve_sizes(degrees, offered.needs, world_size, asking);
  for (const std::string& axis : offered.needs.axes)
    if (setup.sizes.of(axis) > 1 || !has(offered.needs.axes_when_used, axis))
      setup.axes.push_back({axis, setup.sizes.of(axis)});
  setup.views = views_of(setup.sizes, setup.axis_table);
}

void add_not_built(std::vector<std::string>& out, const std::string& section,
                   const std::vector<std::string>& more) {
  for (const std::string& line : more) out.push_back(section + "." + line);
}

// The strategy's own fields.
void resolve_strategy(const Node& section, const std::string& word, const OfferedStrategy& offered,
                      const Blocks& blocks, PluginRegistry& plugins, Setup& setup) {
  Node options = strategy_keys(section, blocks, find_batch_plugins(section, plugins), setup.axis_table);
  Errors errors;
  errors.attempt([&] { check_options(options, word, offered, blocks, setup.axis_table, plugins); });
  Resolved strategy;
  errors.attempt([&] { strategy = offered.resolve(options); });
  errors.raise();
  setup.strategy = offered.name;
  setup.strategy_config = strategy.values;
  add_not_built(setup.not_built, "distributed", strategy.not_built);
  if (!strategy.not_built.empty() || !offered.make) return;
  if (const auto approximate = offered.make(strategy.values)->needs().approximate)
    setup.warnings.push_back("the strategy '" + offered.name + "' is approximate: " + approximate->reason +
                             (approximate->exact.empty()
                                  ? ""
                                  : "; it is exact with " + approximate->exact + " under `distributed:`"));
}

// Each line is attempted where what it needs is known.
void validate_section(const Node& section, PluginRegistry& plugins, int world_size, IdleBlocks idle,
                      Setup& setup) {
  Errors errors;
  const OfferedStrategy* offered = nullptr;
  std::string word;
  errors.attempt([&] {
    word = strategy_word(section);
    offered = plugins.strategy(word);
    if (offered == nullptr) unknown_strategy(word, section, plugins);
  });
  setup.axis_table = axes_for(section, plugins);
  std::optional<Degrees> degrees;
  errors.attempt([&] { degrees.emplace(section, setup.axis_table); });
  errors.attempt([&] { setup.activation_checkpointing = checkpointing_of(section); });
  if (offered != nullptr && setup.activation_checkpointing == ActivationCheckpointing::selective)
    errors.attempt([&] { check_selective(section, *offered, plugins); });
  const bool has_degrees = degrees.has_value();
  if (!has_degrees) degrees.emplace(Node::map({}), setup.axis_table);  // keys are checked all the same
  Blocks blocks = find_blocks(section, *degrees, plugins);
  if (idle == IdleBlocks::dropped) drop_idle(blocks, setup.warnings);
  if (offered != nullptr) {
    errors.attempt([&] { resolve_strategy(section, word, *offered, blocks, plugins, setup); });
    errors.attempt([&] { check_hydra_keys(section, offered->name, plugins, setup.warnings); });
  }
  errors.attempt([&] { resolve_blocks(blocks, section, setup); });
  const bool fits = has_degrees && offered != nullptr && errors.attempt([&] {
    resolve_mesh(section, *degrees, *offered, world_size, plugins, setup);
  });
  if (fits && !setup.strategy.empty()) {
    errors.attempt([&] { resolve_parallelizers(section, setup, plugins); });
    errors.attempt([&] { resolve_batch_plugins(find_batch_plugins(section, plugins), setup); });
  }
  errors.raise();
}

}  // namespace

std::string python_list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back("'" + text::excerpt(word) + "'");
  return "[" + text::join(quoted) + "]";
}

Setup validate(const Node& configuration, PluginRegistry& plugins, int world_size, IdleBlocks idle) {
  if (world_size < 1)
    throw Error(ErrorCode::usage, "world size", "expected at least 1, got " + std::to_string(world_size));
  Setup setup;
  setup.configuration = configuration;
  Errors errors;
  errors.attempt([&] { validate_section(distributed_of(configuration), plugins, world_size, idle, setup); });
  errors.attempt([&] { read_environment(configuration, setup, plugins); });
  errors.raise();
  note_what_comes_later(setup, plugins);
  return setup;
}

}  // namespace heddle::engine
