// Looks for the plugin of each section that is not heddle's own.
#include "lib/run/recipe/plugin_sections.h"

#include <algorithm>
#include <array>

#include "heddle/base/text.h"
#include "heddle/plugin/metrics.h"
#include "heddle/plugin/transform.h"
#include "lib/run/recipe/recipe.h"
#include "lib/run/recipe/section_names.h"

namespace heddle {
namespace {

// Kinds whose names are sections at the top of a recipe.
constexpr std::array<const char*, 2> kKinds = {OfferedTransform::kKind, OfferedMetrics::kKind};

// `enable: false` turns a section off; a plugin may have a field of that name.
bool is_off(const Node& section) {
  const Node* enable = section.find("enable");
  return enable != nullptr && !enable->is_null() && !enable->as_boolean();
}

bool has_field(const OfferedSchema& offered, const std::string& key) {
  return std::any_of(offered.fields.begin(), offered.fields.end(),
                     [&](const FieldInfo& field) { return field.key == key; });
}

void read_section(PluginSection section, Recipe& recipe) {
  const OfferedSchema& offered = *section.offered;
  for (const PluginSection& other : recipe.sections)
    if (other.offered == section.offered)
      throw Error(ErrorCode::config, section.given.where(),
                  "'" + offered.name + "' is given twice, at " + other.given.where() + " too",
                  "leave one of them out");
  const bool may_be_off = section.given.is_map() && !has_field(offered, "enable");
  const bool off = may_be_off && is_off(section.given);
  Resolved resolved = offered.resolve(may_be_off ? section.given.without("enable") : section.given);
  if (off) return;
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
                   ? "this is a model's config.json; a configuration names it: model: {config: PATH}"
               : elsewhere != kOtherSections.end() ? std::string(elsewhere->hint)
               : nearest.empty()                   ? "the sections are: " + text::join(names)
                                                   : "did you mean '" + nearest + "'?");
}

void read_plugin_sections(Recipe& recipe, PluginRegistry& plugins, Errors& errors) {
  const std::vector<std::string> names = plugin_section_names(plugins);
  RecipeNotes notes;
  for (const auto& [key, given] : recipe.others) {
    const bool is_read = errors.attempt([&, &name = key, &section = given] {
      const bool is_offered = std::find(names.begin(), names.end(), name) != names.end();
      if (section.is_null() && (is_other_section(name) || is_offered)) return;  // as good as left out
      for (const char* kind : kKinds)
        if (const OfferedSchema* offered = is_offered ? plugins.find(kind, name) : nullptr)
          return read_section({section, name, offered, kind}, recipe);
      if (!recipe::skip(recipe.configuration, name, section, notes))
        throw unknown_section(recipe.configuration, name, section, names);
    });
    if (!is_read) recipe.unread.push_back(key);
  }
  recipe.add(std::move(notes));
  for (const std::string& name : plugins.names(OfferedTransform::kKind))
    if (std::none_of(recipe.sections.begin(), recipe.sections.end(),
                     [&](const PluginSection& section) { return section.name == name; }))
      recipe.idle.push_back(name);
}

}  // namespace heddle
