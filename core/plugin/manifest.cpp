// Reads the text of the manifest line by line, and compares ABI tags.
#include "core/plugin/manifest.h"

#include "core/plugin/kinds.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include "core/plugin/elf.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/plugin/abi.h"
#include "heddle/plugin/entry_point.h"

namespace heddle {
namespace plugin {
namespace {

std::string kind_words() {
  std::vector<std::string> words;
  for (const Kind& kind : kinds()) words.emplace_back(kind.word);
  return text::join(words);
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

bool is_name(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '+';
  });
}

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::plugin_failed, where, "the plugin's manifest does not read: " + why,
              "write them with HEDDLE_PLUGIN(\"name\", \"version\", \"kind name alias...\") of heddle/sdk.h");
}

ManifestOffer parse_offer(const std::string& line, const std::string& where) {
  std::vector<std::string> words = words_of(line);
  if (words.size() < 2) refuse(where, "'offer " + line + "' is not 'offer kind name alias...'");
  if (kind_of(words[0]) == nullptr)
    refuse(where, "unknown kind '" + words[0] + "' (there are: " + kind_words() + ")");
  for (size_t i = 1; i < words.size(); ++i)
    if (!is_name(words[i]))
      refuse(where, "'" + words[i] + "' is not a name (letters, digits, '_', '-', '.', '+')");
  return {{words[0], words[1], {words.begin() + 2, words.end()}}};
}

// The first pair of the tags that differs, as "torch is 2.10.0 there and 2.11.0 here".
std::string difference(std::string_view theirs, std::string_view ours) {
  const std::vector<std::string> there = words_of(theirs), here = words_of(ours);
  std::vector<std::string> out;
  for (const std::string& pair : here) {
    const std::string key = pair.substr(0, pair.find('=') + 1);
    const auto same = [&key](const std::string& other) { return other.rfind(key, 0) == 0; };
    const auto found = std::find_if(there.begin(), there.end(), same);
    const std::string value = found == there.end() ? "unknown" : found->substr(key.size());
    if (value != pair.substr(key.size()))
      out.push_back(key.substr(0, key.size() - 1) + " is " + value + " there and " + pair.substr(key.size()) +
                    " here");
  }
  return out.empty() ? "the tags differ" : text::join(out, "; ");
}

}  // namespace

bool ManifestOffer::answers_to(std::string_view word) const {
  const std::string wanted = text::lower(word);
  return text::lower(name) == wanted ||
         std::any_of(aliases.begin(), aliases.end(),
                     [&](const std::string& alias) { return text::lower(alias) == wanted; });
}

}  // namespace plugin

std::string PluginFile::Offer::text() const {
  return kind + " " + name + (aliases.empty() ? "" : " (" + text::join(aliases) + ")");
}

namespace plugin {

std::string_view abi_tag() {
  return HEDDLE_ABI_TAG;
}

PluginManifest parse_manifest(std::string_view text, const std::string& where) {
  std::istringstream lines{std::string(text.substr(0, text.find('\0')))};
  std::string line;
  if (!std::getline(lines, line) || line.rfind("heddle plugin manifest ", 0) != 0)
    refuse(where, "it does not begin as a manifest");
  if (line != "heddle plugin manifest 1")
    refuse(where, "'" + line + "' is of another form than this engine reads");
  PluginManifest manifest;
  bool ended = false;
  while (!ended && std::getline(lines, line)) {
    const std::string key = line.substr(0, line.find(' '));
    const std::string rest = key.size() < line.size() ? line.substr(key.size() + 1) : "";
    if (key == "abi") {
      manifest.abi = rest;
    } else if (key == "plugin") {
      const std::vector<std::string> words = words_of(rest);
      if (words.size() != 2 || !is_name(words[0]) || !is_name(words[1]))
        refuse(where, "'" + line + "' is not 'plugin name version'");
      manifest.name = words[0], manifest.version = words[1];
    } else if (key == "offer") {
      manifest.offers.push_back(parse_offer(rest, where));
    } else if (key == "end") {
      ended = true;
    } else {
      refuse(where, "unknown line '" + line + "'");
    }
  }
  if (!ended) refuse(where, "it stops before its end");
  if (manifest.name.empty() || manifest.abi.empty()) refuse(where, "the name or the ABI tag is missing");
  if (manifest.offers.empty()) manifest.offers.push_back({"strategy", manifest.name, {}});
  return manifest;
}

PluginManifest read_manifest(const std::filesystem::path& file) {
  const std::optional<std::string> text = read_section(file, HEDDLE_MANIFEST_SECTION);
  if (!text)
    throw Error(ErrorCode::plugin_failed, file.string(),
                "the library has no manifest, so it is not a heddle plugin",
                "open it with HEDDLE_PLUGIN(\"name\", \"version\") of heddle/sdk.h");
  return parse_manifest(*text, file.string());
}

void check_abi(const PluginManifest& manifest, const std::filesystem::path& file) {
  if (manifest.abi == abi_tag()) return;
  throw Error(ErrorCode::plugin_abi, file.string(),
              "the plugin '" + manifest.name + "' " + manifest.version +
                  " was built for another engine: " + difference(manifest.abi, abi_tag()) +
                  " (plugin: " + manifest.abi + "; engine: " + std::string(abi_tag()) + ")",
              "build it again against this engine's SDK, with the same standard library and LibTorch");
}

}  // namespace plugin
}  // namespace heddle
