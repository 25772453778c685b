// Copies a template and replaces its name.
#include "trainer/cli/plugins/plugin_create.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/plugin/registry.h"
#include "trainer/cli/plugins/family_start.h"
#include "trainer/cli/plugins/templates.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

// Returns the template directory of a kind.
fs::path template_of(const std::string& kind) {
  const std::vector<std::string> names = template_names();
  if (names.empty())
    throw Error(ErrorCode::internal, template_directory().string(), "the templates of plugins are missing",
                "reinstall heddle");
  if (std::find(names.begin(), names.end(), kind) == names.end())
    throw Error(ErrorCode::usage, "heddle plugins new", "unknown template '" + kind + "' for --kind",
                "available kinds: " + text::join(names));
  return template_directory() / kind;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error(ErrorCode::io, file.string(), "cannot be read", "reinstall heddle");
  return text;
}

bool has_class(const std::string& text, const std::string& name) {
  for (const std::string& begin : {"struct " + name, "class " + name, "using heddle::" + name})
    for (size_t at = 0; (at = text.find(begin, at)) != text.npos; at += begin.size())
      if (!std::isalnum(static_cast<unsigned char>(text[at + begin.size()]))) return true;
  return false;
}

// Whether the plugin, or one of its offers, has the name.
bool has_name(const PluginFile& file, const std::string& name) {
  const auto is_same = [&](const std::string& other) { return text::lower(other) == name; };
  return is_same(file.name) ||
         std::any_of(file.offers.begin(), file.offers.end(), [&](const PluginFile::Offer& offer) {
           return is_same(offer.name) || std::any_of(offer.aliases.begin(), offer.aliases.end(), is_same);
         });
}

// Checks that the name has only lowercase letters, digits and _, as in manifests and file names.
void check_name(const fs::path& directory) {
  const std::string name = directory.filename().string();
  const auto fits = [](char c) {
    return std::islower(static_cast<unsigned char>(c)) || std::isdigit(static_cast<unsigned char>(c)) ||
           c == '_';
  };
  if (name.empty() || !std::islower(static_cast<unsigned char>(name[0])) ||
      !std::all_of(name.begin(), name.end(), fits))
    throw Error(ErrorCode::usage, "heddle plugins new", "'" + name + "' is not a name for a plugin",
                "use lowercase letters, digits and _, starting with a letter: my_strategy");
  if (name == "single")
    throw Error(ErrorCode::usage, "heddle plugins new", "'single' is built into the engine",
                "choose another name");
  for (const PluginFile& file : plugin::files_in(plugin::search_path({})))
    if (has_name(file, name))
      throw Error(ErrorCode::usage, "heddle plugins new",
                  "'" + name + "' is a name of the plugin " + file.path.string(), "choose another name");
  if (fs::exists(fs::symlink_status(directory)))
    throw Error(ErrorCode::usage, "heddle plugins new", "'" + directory.string() + "' already exists",
                "choose another name, or remove it");
  const fs::path parent = fs::absolute(directory).parent_path();
  if (!fs::is_directory(parent))
    throw Error(ErrorCode::usage, "heddle plugins new",
                "the directory of '" + directory.string() + "' does not exist",
                "choose a name in an existing, writable directory");
}

// Converts "my_strategy" to "MyStrategy".
std::string class_name(const std::string& name) {
  std::string out;
  bool start = true;
  for (const char c : name) {
    if (c != '_') out += start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    start = c == '_';
  }
  return out;
}

// Words of a template and their replacements. At each place of a text the first word that matches is
// replaced.
using Words = std::vector<std::pair<std::string, std::string>>;

std::string replaced(const std::string& text, const Words& words) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto word = std::find_if(words.begin(), words.end(), [&](const auto& each) {
      return text.compare(at, each.first.size(), each.first) == 0;
    });
    out += word == words.end() ? text.substr(at, 1) : word->second;
    at += word == words.end() ? 1 : word->first.size();
  }
  return out;
}

// Returns the words that name the plugin: plugin hello, class Hello and namespace hello_plugin, so any name
// works. A model family also has a model_type.
Words names(const std::string& name) {
  return {{"hello_type", name}, {"hello", name}, {"Hello", class_name(name)}};
}

// Returns the words that a family started from a config.json replaces in the template of models.
Words family_words(const fs::path& from, const FamilyStart& family, const std::string& name) {
  const std::string source = text_of(from / "hello.cpp");
  const size_t begin = source.find("// The keys of config.json"),
               end = source.find("// model_type, class in");
  if (begin >= end || end == source.npos)
    throw Error(ErrorCode::internal, (from / "hello.cpp").string(), "is not the template of a model family",
                "reinstall heddle");
  Words out = {{source.substr(begin, end - begin), family.source},
               {"\"granite\"", text::quoted(family.model_type)},
               {"hello_type", family.model_type}};
  if (!family.architecture.empty()) out.emplace_back("HelloForCausalLM", family.architecture);
  const Words plugin = names(name);
  out.insert(out.end(), plugin.begin(), plugin.end());
  return out;
}

// Throws if the class name is that of another class of the template.
void check_class(const fs::path& from, const std::string& name) {
  if (name == "hello") return;
  for (const auto& entry : fs::directory_iterator(from))
    if (has_class(text_of(entry.path()), class_name(name)))
      throw Error(ErrorCode::usage, "heddle plugins new",
                  "the class of '" + name + "' would be " + class_name(name) +
                      ", which is another class of the template",
                  "choose another name: my_" + name);
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  if (!(out << text) || !out.flush())
    throw Error(ErrorCode::io, file.string(), "cannot be written", "check the disk and the permissions");
}

// Copies the files of the kind, and the common CMakeLists.txt with the kind's sources.
void copy_template(const fs::path& from, const fs::path& to, Words words) {
  std::vector<std::string> sources;
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string file = replaced(entry.path().filename().string(), words);
    write(to / file, replaced(text_of(entry.path()), words));
    if (file.ends_with(".cpp") && !file.ends_with("_test.cpp")) sources.push_back(file);
  }
  std::sort(sources.begin(), sources.end());
  words.emplace_back("SOURCES", text::join(sources, " "));
  write(to / "CMakeLists.txt", replaced(text_of(from.parent_path() / "CMakeLists.txt"), words));
}

// Reads the config.json of --from-hf, if it is given. Throws if a plugin offers its model_type.
std::optional<FamilyStart> family_start(const PluginsCommand& command) {
  if (command.from_hf.empty()) return std::nullopt;
  if (command.kind != "model")
    throw Error(ErrorCode::usage, "heddle plugins new",
                "--from-hf starts a model family, and --kind is " + command.kind, "add --kind model");
  FamilyStart out = read_family_start(command.from_hf);
  const std::string type = text::lower(out.model_type);
  for (const PluginFile& file : plugin::files_in(plugin::search_path({})))
    if (has_name(file, type))
      throw Error(ErrorCode::usage, "heddle plugins new --from-hf",
                  "the model_type '" + out.model_type + "' of " + out.file.string() +
                      " is a name of the plugin " + file.path.string(),
                  "train the model without a new plugin, or give a copy of the file another model_type");
  return out;
}

}  // namespace

int create_plugin(const PluginsCommand& command) {
  const fs::path directory = command.arguments.front();
  check_name(directory);
  const std::string name = directory.filename().string();
  const fs::path from = template_of(command.kind);
  check_class(from, name);
  const std::optional<FamilyStart> family = family_start(command);
  std::error_code failure;
  if (!fs::create_directory(directory, failure))
    throw Error(ErrorCode::io, directory.string(), "cannot be created: " + failure.message(),
                "choose a name in an existing, writable directory");
  copy_template(from, directory, family ? family_words(from, *family, name) : names(name));
  if (family) write(directory / "config.json", text_of(family->file));
  std::cout << "wrote " << directory.string() << "/ from the template '" << command.kind << "'; "
            << (directory / "README.md").string() << " explains how to build and check it\n";
  return 0;
}

}  // namespace heddle::cli
