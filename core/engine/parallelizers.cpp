// Parallelizers are found by their axis and read the strategy's fields.
#include "core/engine/parallelizers.h"

#include "core/engine/sections.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::engine {
namespace {

// A plan's name is replaced by the plan's map, with the mark of the name.
Node plan_named(const Node& word, PluginRegistry& plugins) {
  if (word.kind() != Node::Kind::text) return word;
  const OfferedPlan* plan = plugins.plan(word.as_text());
  if (plan == nullptr) {
    const std::vector<std::string> known = plugins.names("plan");
    const std::string near = text::nearest(word.as_text(), known);
    throw Error(ErrorCode::config, word.where(),
                "Custom parallel plan " + word.written() +
                    " is not valid. Please ensure it is one of the following:\n"
                    "1. A map of module paths to parallel styles\n"
                    "2. The name of a plan that a plugin offers" +
                    (known.empty() ? "" : " (" + text::join(known) + ")"),
                near.empty() ? "heddle has no Python: write a function's plan as a map"
                             : "did you mean '" + near + "'?");
  }
  std::vector<Node::Entry> entries;
  for (const auto& [pattern, style] : plan->resolve(Node::map({})).values.entries())
    entries.emplace_back(pattern, Node::text(style.as_text(), word.mark(), word.path()));
  return Node::map(std::move(entries), word.mark(), word.path());
}

bool is_field(const OfferedParallelizer& offered, const std::string& key) {
  return std::any_of(offered.fields.begin(), offered.fields.end(),
                     [&](const FieldInfo& field) { return field.key == key; });
}

// The block that a parallelizer reads, where it acts although its sizes are 1; null pointer: none does.
const Node* block_at_one(const OfferedParallelizer& offered, const Setup& setup, PluginRegistry& plugins) {
  for (const auto& [name, values] : setup.sections) {
    const OfferedSection* section = values.is_null() ? nullptr : plugins.section(name);
    if (section != nullptr && is_field(offered, name) && is_idle(*section, setup)) return &values;
  }
  return nullptr;
}

bool any_block_at_one(const AxisInfo& axis, const Setup& setup, PluginRegistry& plugins) {
  return std::any_of(setup.sections.begin(), setup.sections.end(), [&](const auto& one) {
    const OfferedSection* section = one.second.is_null() ? nullptr : plugins.section(one.first);
    return section != nullptr && section->size_key == axis.key && is_idle(*section, setup);
  });
}

Node fields_of(const OfferedParallelizer& offered, const Node& section, const Setup& setup,
               PluginRegistry& plugins) {
  Node fields = Node::map({}, section.mark(), section.path());
  const Node* const at_one = block_at_one(offered, setup, plugins);
  for (const FieldInfo& field : offered.fields) {
    const Node* value = section.find(field.key);  // as written, with its line
    if (at_one != nullptr && plugins.section(field.key) != nullptr) value = at_one;
    if (value == nullptr || value->is_null()) value = setup.strategy_config.find(field.key);
    if (value != nullptr)
      fields = fields.with(field.key, field.key == offered.plan_key ? plan_named(*value, plugins) : *value);
  }
  return fields;
}

// The index of the directory in which a parallelizer's plugin was found, in the order of the search path. A
// plugin loaded by its file name comes first.
size_t search_path_index(const PluginRegistry& plugins, const std::string& parallelizer) {
  const std::string offer = "parallelizer " + parallelizer;
  for (const PluginInfo& info : plugins.loaded()) {
    if (std::none_of(info.offers.begin(), info.offers.end(),
                     [&](const std::string& one) { return one == offer || one.starts_with(offer + " ("); }))
      continue;
    const auto& search_path = plugins.search_path();
    std::error_code ignored;
    for (size_t i = 0; i < search_path.size(); ++i)
      if (std::filesystem::equivalent(info.path.parent_path(), search_path[i], ignored)) return i + 1;
  }
  return 0;
}

struct Found {
  const OfferedParallelizer* offered;
  size_t place;
};

// The parallelizers of the axis, sorted by name.
std::vector<Found> all_of(PluginRegistry& plugins, std::string_view axis) {
  std::vector<Found> out;
  for (const std::string& name : plugins.names("parallelizer")) {
    const OfferedParallelizer* offered = plugins.parallelizer(name);
    if (offered == nullptr || !offered->not_built.empty()) continue;
    const auto& axes = offered->needs.axes;
    const auto same = [&](const Found& one) { return one.offered == offered; };  // by an alias
    if (std::find(axes.begin(), axes.end(), axis) == axes.end() || std::any_of(out.begin(), out.end(), same))
      continue;
    out.push_back({offered, search_path_index(plugins, offered->name)});
  }
  return out;
}

}  // namespace

const OfferedParallelizer* parallelizer_of(PluginRegistry& plugins, std::string_view axis,
                                           std::vector<std::string>* warnings) {
  std::vector<Found> all = all_of(plugins, axis);
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.place < b.place; });
  if (all.empty()) return nullptr;
  const Found& first = all.front();
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].place == first.place)
      throw Error(ErrorCode::plugin_conflict, "distributed." + std::string(axis) + "_size",
                  "two plugins split the axis " + std::string(axis) + ": '" + first.offered->name +
                      "' and '" + all[i].offered->name + "'",
                  "remove one of them from that directory, or name the other's file under 'plugins:'");
    if (warnings != nullptr)
      warnings->push_back("the axis " + std::string(axis) + " is split by the plugin '" +
                          first.offered->name + "', whose place is searched before that of '" +
                          all[i].offered->name + "'");
  }
  return first.offered;
}

namespace {

struct Chosen {
  const AxisInfo* axis;
  const OfferedParallelizer* offered;
};

bool waits_for(const Chosen& one, const std::vector<Chosen>& others) {
  const std::vector<std::string>& after = one.offered->needs.after;
  return std::any_of(others.begin(), others.end(), [&](const Chosen& other) {
    return other.axis != one.axis && std::find(after.begin(), after.end(), other.axis->name) != after.end();
  });
}

// Each comes after those that it names; else in the order of the table.
std::vector<Chosen> ordered(std::vector<Chosen> left) {
  std::vector<Chosen> out;
  while (!left.empty()) {
    const auto next =
        std::find_if(left.begin(), left.end(), [&](const Chosen& one) { return !waits_for(one, left); });
    if (next == left.end()) {
      std::vector<std::string> names;
      for (const Chosen& one : left) names.push_back("'" + one.offered->name + "'");
      throw Error(ErrorCode::plugin_conflict, "distributed." + left.front().axis->key,
                  "each of the parallelizers " + text::join(names) + " acts after another of them",
                  "leave an axis out of Needs::after of one of them");
    }
    out.push_back(*next);
    left.erase(next);
  }
  return out;
}

// Its fields that are given and ask for something.
std::vector<Node::Entry> given_axis_fields(const OfferedParallelizer& offered, const Node& section) {
  std::vector<Node::Entry> out;
  for (const std::string& key : offered.axis_fields) {
    const Node* value = section.find(key);
    if (value != nullptr && !value->is_null() && *value != Node::boolean(false))
      out.emplace_back(key, *value);
  }
  return out;
}

// A recipe that leaves an axis at 1 may keep its fields, and should hear that they do nothing.
void warn_of_idle_fields(const AxisInfo& axis, const Node& section, Setup& setup, PluginRegistry& plugins) {
  const OfferedParallelizer* offered = parallelizer_of(plugins, axis.name, nullptr);
  if (offered == nullptr) return;
  for (const auto& [key, value] : given_axis_fields(*offered, section))
    setup.warnings.push_back(value.where() + " has no effect: " + axis.key + " is 1");
}

// The strategy has the fields of every parallelizer of the axis, and passes over what the chosen one lacks.
void refuse_fields_of_others(const Chosen& chosen, const Node& section, PluginRegistry& plugins) {
  for (const Found& other : all_of(plugins, chosen.axis->name))
    for (const auto& [key, value] : given_axis_fields(*other.offered, section))
      if (!is_field(*chosen.offered, key))
        throw Error(ErrorCode::config, value.where(),
                    "the parallelizer '" + chosen.offered->name + "', which splits the axis " +
                        chosen.axis->name + ", does not have '" + key + "'",
                    "remove it, or let '" + other.offered->name + "' split the axis");
}

}  // namespace

void resolve_parallelizers(const Node& section, Setup& setup, PluginRegistry& plugins) {
  std::vector<Chosen> chosen;
  for (const AxisInfo& axis : setup.axis_table.axes()) {
    if (!axis.has_parallelizer) continue;
    const bool split = setup.sizes.of(axis.name) > 1;
    if (!split) warn_of_idle_fields(axis, section, setup, plugins);
    if (!split && !any_block_at_one(axis, setup, plugins)) continue;
    const OfferedParallelizer* offered =
        parallelizer_of(plugins, axis.name, split ? &setup.warnings : nullptr);
    if (!split && (offered == nullptr || block_at_one(*offered, setup, plugins) == nullptr)) continue;
    const auto same = [&](const Chosen& one) { return one.offered == offered; };  // of another of its axes
    if (offered != nullptr && std::none_of(chosen.begin(), chosen.end(), same))
      chosen.push_back({&axis, offered});  // else listed with the other sizes
  }
  for (const auto& [axis, offered] : ordered(std::move(chosen))) {
    if (setup.sizes.of(axis->name) > 1) refuse_fields_of_others({axis, offered}, section, plugins);
    const Resolved resolved = offered->resolve(fields_of(*offered, section, setup, plugins));
    for (const std::string& line : resolved.not_built) setup.not_built.push_back("distributed." + line);
    setup.parallelizers.emplace_back(offered->name, resolved.values);
  }
}

BatchPlugins find_batch_plugins(const Node& section, PluginRegistry& plugins) {
  BatchPlugins out;
  const std::vector<std::string> names = plugins.names("parallelizer");
  for (const auto& [key, value] : section.entries()) {
    if (std::find(names.begin(), names.end(), key) == names.end()) continue;
    const OfferedParallelizer* offered = plugins.parallelizer(key);
    const auto same = [offered](const BatchPlugin& one) { return one.offered == offered; };
    if (offered == nullptr || !offered->needs.axes.empty()) continue;
    if (std::any_of(out.begin(), out.end(), same))
      throw Error(ErrorCode::config, value.where(),
                  "the plugin '" + offered->name + "' has two blocks under its names", "keep one of them");
    out.push_back({key, offered, value});
  }
  return out;
}

void resolve_batch_plugins(const BatchPlugins& found, Setup& setup) {
  for (const auto& [key, offered, value] : found) {
    if (value.is_null()) continue;
    const Resolved resolved = offered->resolve(value);
    const std::string where = "distributed." + key;
    if (!offered->not_built.empty()) setup.not_built.push_back(where + ": " + offered->not_built);
    for (const std::string& line : resolved.not_built) setup.not_built.push_back(where + "." + line);
    setup.parallelizers.emplace_back(offered->name, resolved.values);
  }
}

}  // namespace heddle::engine
