// Finds the plugin of each section that heddle does not read itself.
#include "lib/run/recipe/plugin_sections.h"

#include <algorithm>
#include <array>

#include "heddle/base/text.h"
#include "heddle/plugin/metrics.h"
#include "heddle/plugin/transform.h"
#include "lib/run/recipe/readers.h"
#include "lib/run/recipe/recipe.h"
#include "lib/run/recipe/section_names.h"

namespace heddle {
namespace {

// Offers whose names are top-level sections of a recipe.
constexpr std::array<const char*, 2> kKinds = {OfferedTransform::kKind, OfferedMetrics::kKind};

// `enable: false` turns a section off, unless its plugin has a field with that name. `enable: true` is not a
// key of a section that only `enabled` turns on.
bool is_off(const Node& section) {
  const Node* enable = section.find("enable");
  return enable != nullptr && !enable->is_null() && !enable->as_boolean();
}

bool has_field(const OfferedSchema& offered, const std::string& key) {
  return std::any_of(offered.fields.begin(), offered.fields.end(),
                     [&](const FieldInfo& field) { return field.key == key; });
}

const OfferedTransform* offered_transform(const PluginSection& section) {
  if (section.kind != OfferedTransform::kKind) return nullptr;
  return static_cast<const OfferedTransform*>(section.offered);
}

bool given_in(const Node& root, const std::string& key) {
  const Node* value = root.find(key);
  return value != nullptr && !value->is_null();
}

// Returns the section and the other keys that belong to it as one map.
Node with_its_keys(const OfferedTransform& offered, const Node& section, const Node& root) {
  std::vector<Node::Entry> entries{{offered.name, section}};
  for (const std::string& key : offered.keys)
    if (given_in(root, key)) entries.emplace_back(key, *root.find(key));
  return Node::map(std::move(entries), section.mark(), section.path());
}

// Throws if the section belongs to another recipe.
void check_recipe(const OfferedTransform& offered, const Node& root) {
  const std::string name = recipe::name_of(root);
  if (offered.recipe.empty() || name.empty() || name == offered.recipe) return;
  throw Error(ErrorCode::config, root.find("recipe")->where(),
              name + " does not support the section " + offered.name,
              "set recipe: " + offered.recipe + ", or remove " + offered.name);
}

void read_section(PluginSection section, Recipe& recipe) {
  const OfferedSchema& offered = *section.offered;
  for (const PluginSection& other : recipe.sections)
    if (other.offered == section.offered)
      throw Error(ErrorCode::config, section.node.where(),
                  "'" + offered.name + "' is given twice, also at " + other.node.where(),
                  "remove one of them");
  const bool off = section.node.is_map() && !has_field(offered, "enable") && is_off(section.node);
  const bool may_be_off =
      section.node.is_map() && !has_field(offered, "enable") && (off || !has_field(offered, "enabled"));
  Node read = may_be_off ? section.node.without("enable") : section.node;
  const OfferedTransform* transform = offered_transform(section);
  if (transform != nullptr && !transform->keys.empty())
    read = with_its_keys(*transform, read, recipe.configuration);
  Resolved resolved = offered.resolve(read);
  if (off) return;
  if (transform != nullptr) check_recipe(*transform, recipe.configuration);
  for (const std::string& line : resolved.not_built) recipe.not_built.push_back(offered.name + "." + line);
  if (!offered.not_built.empty()) recipe.not_built.push_back(offered.name + ": " + offered.not_built);
  if (recipe.benchmark && section.kind == OfferedMetrics::kKind) {
    recipe.skipped.push_back({offered.name, "a benchmark writes no metrics"});
    return;
  }
  section.name = offered.name;
  section.values = std::move(resolved.values);
  recipe.sections.push_back(std::move(section));
}

}  // namespace

std::vector<std::string> plugin_section_names(const PluginRegistry& plugins) {
  std::vector<std::string> out;
  for (const char* kind : kKinds)
    for (const std::string& name : plugins.names(kind)) out.push_back(name);
  return out;
}

Error unknown_section(const Node& root, const std::string& key, const Node& value,
                      const std::vector<std::string>& of_plugins) {
  std::vector<std::string> names(kSections.begin(), kSections.end());
  names.insert(names.end(), of_plugins.begin(), of_plugins.end());
  const std::string nearest = text::nearest(key, names);
  const auto elsewhere = std::find_if(kOtherSections.begin(), kOtherSections.end(),
                                      [&](const OtherSection& other) { return other.name == key; });
  return Error(ErrorCode::config, value.where(), "unknown key '" + text::excerpt(key) + "'",
               root.find("model_type") != nullptr
                   ? "this file is a model's config.json; name it in a configuration: model: {config: PATH}"
               : elsewhere != kOtherSections.end() ? std::string(elsewhere->hint)
               : nearest.empty()                   ? "available sections: " + text::join(names)
                                                   : "did you mean '" + nearest + "'?");
}

// Returns the extra keys of the sections that are given; a plugin is loaded when its section is given.
std::vector<std::string> keys_of_sections(const Recipe& recipe, PluginRegistry& plugins) {
  std::vector<std::string> out;
  const std::vector<std::string> transforms = plugins.names(OfferedTransform::kKind);
  for (const auto& [key, given] : recipe.other_sections) {
    if (given.is_null() || std::find(transforms.begin(), transforms.end(), key) == transforms.end()) continue;
    const OfferedSchema* offered = plugins.find(OfferedTransform::kKind, key);
    const auto& more = static_cast<const OfferedTransform*>(offered)->keys;
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

// Reads the sections of plugins. An unknown section is an error that suggests the nearest name.
Recipe with_plugin_sections(Recipe recipe, PluginRegistry& plugins) {
  Errors& errors = recipe.errors;
  std::vector<std::string> names = plugin_section_names(plugins);
  std::vector<std::string> keys;
  errors.attempt([&] { keys = keys_of_sections(recipe, plugins); });
  RecipeNotes notes;
  for (const auto& [key, given] : recipe.other_sections) {
    const bool is_read = errors.attempt([&, &name = key, &section = given] {
      const bool is_offered = std::find(names.begin(), names.end(), name) != names.end();
      // the same as a missing section
      if (section.is_null() && (is_other_section(name) || is_offered)) return;
      if (std::find(keys.begin(), keys.end(), name) != keys.end()) return;  // read with its section
      for (const char* kind : kKinds)
        if (const OfferedSchema* offered = is_offered ? plugins.find(kind, name) : nullptr)
          return read_section({section, name, offered, kind}, recipe);
      if (recipe::skip(recipe.configuration, name, section, notes)) return;
      names.insert(names.end(), keys.begin(), keys.end());
      throw unknown_section(recipe.configuration, name, section, names);
    });
    if (!is_read) recipe.unread.push_back(key);
  }
  recipe.add(std::move(notes));
  for (const std::string& name : plugins.names(OfferedTransform::kKind))
    if (std::none_of(recipe.sections.begin(), recipe.sections.end(),
                     [&](const PluginSection& section) { return section.name == name; }))
      recipe.idle.push_back(name);
  return recipe;
}

}  // namespace heddle
