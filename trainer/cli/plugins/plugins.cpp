// `heddle plugins`: lists plugins from their manifests, prints the fields of one, and runs the conformance
// kits.
#include "trainer/cli/run_commands.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heddle/base/text.h"
#include "heddle/plugin/registry.h"
#include "lib/run/recipe/recipe.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/plugins/plugin_check.h"
#include "trainer/cli/plugins/plugin_create.h"
#include "trainer/cli/plugins/plugin_tables.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const PluginFile& file) {
  Json offers = Json::array();
  for (const PluginFile::Offer& offer : file.offers)
    offers.push_back({{"kind", offer.kind}, {"name", offer.name}, {"aliases", offer.aliases}});
  return {{"plugin", file.name},
          {"version", file.version.empty() ? Json() : Json(file.version)},
          {"path", file.path.string()},
          {"offers", offers},
          {"fault", file.fault}};
}

std::string text_of(const PluginFile& file) {
  std::string out = file.name + (file.version.empty() ? "" : " " + file.version);
  if (!file.fault.empty()) out += "  CANNOT BE LOADED";
  out += "\n  file: " + file.path.string() + "\n";
  if (!file.offers.empty()) {
    std::vector<std::string> offers;
    for (const PluginFile::Offer& offer : file.offers) offers.push_back(offer.text());
    out += "  offers: " + text::join(offers, ", ") + "\n";
  }
  if (!file.fault.empty()) out += "  why: " + file.fault + "\n";
  return out;
}

int list(const PluginsCommand& command) {
  std::vector<std::filesystem::path> given(command.arguments.begin(), command.arguments.end());
  for (const std::filesystem::path& place : given)
    if (!std::filesystem::is_directory(place))
      throw Error(ErrorCode::usage, "heddle plugins list", "'" + place.string() + "' is not a directory",
                  "give directories that contain libheddle_*.so files");
  warn_of_plugin_path(Log::to_stderr(0));
  std::vector<std::filesystem::path> search_path;
  for (const std::filesystem::path& place : plugin::search_path(given)) {
    const std::filesystem::path plain = std::filesystem::weakly_canonical(place);
    if (std::find(search_path.begin(), search_path.end(), plain) == search_path.end())
      search_path.push_back(plain);
  }
  Json lines = Json::array();
  std::string text;
  for (const PluginInfo& own : PluginRegistry({}).loaded()) {
    Json offers = Json::array();
    for (const char* kind : {"strategy", "schedule"})
      offers.push_back({{"kind", kind}, {"name", own.name}, {"aliases", Json::array()}});
    lines.push_back(
        {{"plugin", own.name}, {"version", own.version}, {"path", ""}, {"offers", offers}, {"fault", ""}});
    text += own.name + " " + own.version + "\n  built into the engine\n  offers: " + text::join(own.offers) +
            "\n";
  }
  for (const PluginFile& file : plugin::files_in(search_path)) {
    lines.push_back(json_of(file));
    text += text_of(file);
  }
  std::vector<std::string> looked;
  for (const std::filesystem::path& place : search_path) looked.push_back(place.string());
  if (command.json) {
    std::cout << Json{{"engine", plugin::abi_tag()}, {"places", looked}, {"plugins", lines}}.dump() << "\n";
  } else {
    std::cout << text << "\nsearched: " << text::join(looked) << "\n";
  }
  return 0;
}

// Whether an offer "strategy NAME (ALIAS, ALIAS)" has the name.
bool offers_name(const PluginInfo& info, const std::string& name) {
  for (const std::string& offer : info.offers) {
    std::istringstream words(offer);
    for (std::string word; words >> word;) {
      std::erase_if(word, [](char c) { return c == '(' || c == ')' || c == ','; });
      if (text::lower(word) == text::lower(name)) return true;
    }
  }
  return false;
}

// Loads a plugin by its own name, or by the name or an alias of an offer.
PluginInfo load_by_any_name(PluginRegistry& registry, const std::string& name) {
  const bool is_file = name.find('/') != std::string::npos || name.ends_with(".so");
  const auto loaded_by = [&](std::string_view kind) {
    for (const std::string& known : registry.names(kind))
      if (text::lower(known) == text::lower(name)) return true;
    return false;
  };
  if (is_file || text::lower(name) == "single" || loaded_by("plugin")) return registry.load(name);
  const size_t before = registry.loaded().size();
  const std::vector<std::string> kinds = PluginRegistry::kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(), loaded_by);
  if (kind == kinds.end()) return registry.load(name);  // throws an error that names every searched place
  (void)registry.find(*kind, name);
  const std::vector<PluginInfo> loaded = registry.loaded();
  if (loaded.size() > before) return loaded.at(before);
  for (const PluginInfo& info : loaded)  // loaded by `plugins:` of the run
    if (offers_name(info, name)) return info;
  return registry.load(name);
}

int inspect(const PluginsCommand& command) {
  PluginRegistry registry = plugins_of_file(command.config);
  bool first = true;
  for (const std::string& name : command.arguments) {
    const PluginInfo info = load_by_any_name(registry, name);
    const std::vector<Offered> offers = offered_by(info, registry);
    if (command.json)
      std::cout << to_json(info, offers) << "\n";
    else if (command.markdown)
      std::cout << to_markdown(offers);
    else
      std::cout << (first ? "" : "\n") << to_text(info, offers);
    first = false;
  }
  return 0;
}

constexpr int kUntrained = 3;  // exit status besides 0 (passed) and 2 (failed): unknown

// Counts of the checks that ran.
struct Count {
  size_t ran = 0, failed = 0;
  void add(const kits::Report& report) {
    for (const kits::Check& check : report.checks) {
      ran += check.ran ? 1 : 0;
      failed += check.passed ? 0 : 1;
    }
  }
  std::string text() const {
    return failed == 0 ? std::to_string(ran) + " checks passed"
                       : std::to_string(failed) + " of " + std::to_string(ran) + " checks failed";
  }
};

// Returns the last line of a report.
std::string verdict_of(const kits::Report& report) {
  Count count;
  count.add(report);
  const std::vector<std::string> untrained = report.untrained();
  if (count.failed > 0 || untrained.empty()) return count.text();
  return count.text() + ", but no kit trained with " + text::join(untrained) +
         ": every kit that uses it was skipped for the reasons above, so its correctness is "
         "unknown";
}

kits::KitOptions kit_options(const PluginsCommand& command) {
  kits::KitOptions options;
  if (!command.ranks.empty()) options.ranks = command.ranks;
  if (!command.fields.empty()) options.fields = command.fields;
  options.time_limit = command.time_limit;
  options.device = device_of_check(command.device);
  if (!command.json)
    options.ended = [](const kits::Check& check) { std::cout << check.text() << std::flush; };
  return options;
}

int check(const PluginsCommand& command) {
  Count all;
  bool unknown = false;
  std::string broken;
  const kits::KitOptions options = kit_options(command);
  for (const std::string& file : command.arguments) {
    if (!command.json) std::cout << file << std::endl;
    const kits::Report report = check_apart(file, options);
    Json checks = Json::array();
    for (const kits::Check& check : report.checks) {
      checks.push_back(
          {{"rule", check.rule}, {"passed", check.passed}, {"detail", check.detail}, {"ran", check.ran}});
      if (!check.passed && broken.empty()) broken = file;
    }
    all.add(report);
    const std::vector<std::string> untrained = report.untrained();
    if (command.json)
      std::cout << Json{{"file", file},
                        {"device", options.device ? options.device->name : "cpu"},
                        {"passed", report.passed()},
                        {"checks", checks},
                        {"trained", untrained.empty()},
                        {"untrained", untrained}}
                       .dump()
                << "\n";
    else
      std::cout << verdict_of(report) << "\n";
    unknown = unknown || !untrained.empty();
  }
  std::cout.flush();
  if (all.failed == 0) return unknown ? kUntrained : 0;
  throw Error(ErrorCode::plugin_failed, broken, all.text(),
              "see the lines that begin with FAIL; docs/plugins/testing.md explains each kit");
}

}  // namespace

int plugins(const PluginsCommand& command) {
  switch (command.action) {
    case PluginsCommand::Action::list:
      return list(command);
    case PluginsCommand::Action::inspect:
      return inspect(command);
    case PluginsCommand::Action::check:
      return check(command);
    case PluginsCommand::Action::create:
      return create_plugin(command);
  }
  return 0;
}

}  // namespace heddle::cli
