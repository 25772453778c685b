// Search path of plugins: `plugins:` with names, files and directories, and HEDDLE_PLUGIN_PATH.
#include <filesystem>
#include <system_error>
#include <vector>

#include "heddle/base/text.h"
#include "heddle/plugin/registry.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/readers.h"
#include "lib/run/recipe/recipe.h"

namespace heddle::recipe {
namespace {

// Resolves a word that looks like a path: relative to the file that contains it, or for an override to the
// working directory.
std::filesystem::path resolved(const std::string& word, const Mark& mark) {
  const std::filesystem::path path(expand_home(word));
  if (path.is_absolute() || mark.file.starts_with("--")) return path;
  return (std::filesystem::path(mark.file).parent_path() / path).lexically_normal();
}

bool is_path(const std::string& word) {
  return word.ends_with(".so") || word.find('/') != std::string::npos;
}

std::string existing(const std::filesystem::path& path, const Node& item) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path.string();
  throw Error(
      ErrorCode::plugin_missing, item.where(),
      "the plugin file or directory does not exist: " + text::excerpt(path.string()),
      std::string("give the path of a libheddle_*.so or of a directory that contains one; a relative path "
                  "is relative to the ") +
          (item.mark().file.starts_with("--") ? "working directory" : "directory of this file"));
}

}  // namespace

PluginsSection read_plugins(const Node& section) {
  PluginsSection out;
  if (section.is_map() && section.size() == 0) return out;
  if (!section.is_list())
    throw Error(ErrorCode::config, section.where(),
                "expected a list of plugin names, files and directories, got " + section.written());
  for (const Node& item : section.items()) {
    const std::string& word = item.as_text();
    const std::filesystem::path path = resolved(word, item.mark());
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored))
      out.places.push_back(path.string());
    else if (is_path(word))
      out.load.push_back(existing(path, item));
    else
      out.load.push_back(word);
  }
  return out;
}

}  // namespace heddle::recipe

namespace heddle {

// Warns of missing directories; the last place of the search path is the engine's own.
void warn_of_plugin_path(const Log& log) {
  const std::vector<std::filesystem::path> places = plugin::search_path({});
  std::error_code ignored;
  for (size_t i = 0; i + 1 < places.size(); ++i)
    if (!std::filesystem::is_directory(places[i], ignored))
      log.warning("plugins", "HEDDLE_PLUGIN_PATH names " + places[i].string() + ", which is not a directory");
}

PluginRegistry open_plugins(const Node& root, const Log& log) {
  warn_of_plugin_path(log);
  const PluginsSection section = recipe::read_plugins(recipe::find_section(root, "plugins"));
  const std::vector<std::filesystem::path> places(section.places.begin(), section.places.end());
  PluginRegistry plugins(plugin::search_path(places), log);
  for (const std::string& one : section.load) plugins.load(one);
  return plugins;
}

PluginRegistry open_plugins(const Recipe& recipe, const Log& log) {
  try {
    return open_plugins(recipe.configuration, log);
  } catch (const Error& error) {
    Errors all = recipe.errors;
    all.add(error);
    all.raise();
    throw;
  }
}

}  // namespace heddle
