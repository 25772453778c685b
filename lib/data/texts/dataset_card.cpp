// Parses the front matter of dataset cards into configurations.
#include "lib/data/texts/dataset_card.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/node.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestCard = 16u << 20;  // bytes
constexpr const char* kNameFiles = "Correct the card, or list the data files in the recipe.";
// Keys that change what the library datasets reads from the files.
constexpr std::string_view kChangesRows =
    " field encoding encoding_errors features columns filters on_bad_files ";

std::string content_of_card(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return "";
  if (fs::file_size(file, ignored) > kLargestCard)
    throw Error(ErrorCode::input, file.string(),
                "the file has more than " + bytes_text(static_cast<int64_t>(kLargestCard)), kNameFiles);
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the text without carriage returns between two `---` lines, the first of which starts the file
// except for whitespace, preceded by as many empty lines as come before it; empty: none.
std::string front_matter(const std::string& content) {
  std::string text;
  for (size_t at = 0; at < content.size(); ++at) {
    if (content[at] != '\r')
      text += content[at];
    else if (at + 1 == content.size() || content[at + 1] != '\n')
      text += '\n';
  }
  const size_t first = text.find_first_not_of(" \t\n\v\f");
  if (first == text.npos || text.compare(first, 4, "---\n") != 0) return "";
  const size_t begin = first + 4;
  for (size_t end = text.find("\n---", begin); end != text.npos; end = text.find("\n---", end + 1)) {
    const size_t rest = text.find_first_not_of(" \t", end + 4);
    if (rest != text.npos && text[rest] != '\n') continue;
    const auto lines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
    return std::string(static_cast<size_t>(lines), '\n') + text.substr(begin, end - begin);
  }
  return "";
}

Node yaml_of(const std::string& yaml, const fs::path& file) {
  try {
    return config::read_text(yaml, file.string());
  } catch (const Error& error) {
    throw Error(ErrorCode::input, error.where(), error.message(),
                error.hint().empty() ? kNameFiles : error.hint());
  }
}

bool is_true(const Node& value) {
  switch (value.kind()) {
    case Node::Kind::boolean:
      return value.as_boolean();
    case Node::Kind::integer:
    case Node::Kind::real:
      return value.as_real() != 0;
    case Node::Kind::text:
      return !value.as_text().empty();
    default:
      return value.size() > 0;
  }
}

std::string text_in(const Node& map, const char* key, const std::string& absent) {
  const Node* value = map.find(key);
  if (value == nullptr || value->is_null()) return absent;
  return value->kind() == Node::Kind::text ? value->as_text() : value->written();
}

[[noreturn]] void refuse_data_files(const Node& given) {
  throw Error(ErrorCode::input, given.where(),
              "data_files is " + text::excerpt(given.written()) +
                  "; it takes a pattern, a list of patterns, or a list of {split: NAME, path: PATTERNS} with "
                  "each split once, where NAME has letters, digits, _ and dots",
              kNameFiles);
}

std::vector<std::string> patterns_in(const Node& given, const Node& all) {
  std::vector<std::string> out;
  if (given.kind() == Node::Kind::text) out.push_back(given.as_text());
  for (const Node& item : given.items()) {
    if (item.kind() != Node::Kind::text) refuse_data_files(all);
    out.push_back(item.as_text());
  }
  if (given.kind() != Node::Kind::text && !given.is_list()) refuse_data_files(all);
  return out;
}

SplitPatterns split_patterns(const Node& given) {
  const bool has_splits =
      std::any_of(given.items().begin(), given.items().end(), [](const Node& item) { return item.is_map(); });
  if (!has_splits) return {{"train", patterns_in(given, given)}};
  SplitPatterns out;
  std::set<std::string> known;
  for (const Node& item : given.items()) {
    const Node *name = item.find("split"), *path = item.find("path");
    if (item.size() != 2 || name == nullptr || path == nullptr || name->kind() != Node::Kind::text ||
        !is_split_name(name->as_text()) || !known.insert(name->as_text()).second)
      refuse_data_files(given);
    out.emplace_back(name->as_text(), patterns_in(*path, given));
  }
  return out;
}

DatasetConfig read_config(const Node& given) {
  if (given.find("config_name") == nullptr)
    throw Error(ErrorCode::input, given.where(), "this configuration has no config_name", kNameFiles);
  for (const auto& [key, value] : given.entries())
    if (!value.is_null() && kChangesRows.find(" " + key + " ") != kChangesRows.npos)
      throw Error(ErrorCode::input, value.where(),
                  "the configuration sets " + key + ", which heddle does not apply",
                  "List the data files in the recipe.");
  DatasetConfig out{text_in(given, "config_name", ""), text_in(given, "data_dir", ""), std::nullopt, false};
  const Node* is_default = given.find("default");
  out.is_default = is_default != nullptr && is_true(*is_default);
  const Node* files = given.find("data_files");
  if (files != nullptr && !files->is_null()) out.files = split_patterns(*files);
  return out;
}

RowCounts row_counts(const Node& info) {
  RowCounts out;
  const Node* splits = info.find("splits");
  if (splits == nullptr) return out;
  for (const Node& split : splits->items()) {
    const Node* rows = split.find("num_examples");
    const bool is_said = rows != nullptr && rows->kind() == Node::Kind::integer;
    out[text_in(split, "name", "")] = is_said ? std::optional(rows->as_integer()) : std::nullopt;
  }
  return out;
}

// Reads `dataset_info`, a map or a list of maps, by configuration.
std::map<std::string, RowCounts> read_infos(const Node* infos) {
  std::map<std::string, RowCounts> out;
  if (infos == nullptr) return out;
  if (infos->is_map()) out[text_in(*infos, "config_name", "default")] = row_counts(*infos);
  for (const Node& info : infos->items()) out[text_in(info, "config_name", "default")] = row_counts(info);
  return out;
}

// Reads the configurations of a card. A repeated one replaces the first, at the position of the first.
std::vector<DatasetConfig> read_configs(const Node* given) {
  std::vector<DatasetConfig> out;
  if (given == nullptr || !is_true(*given)) return out;
  if (!given->is_list())
    throw Error(ErrorCode::input, given->where(),
                "configs is " + text::excerpt(given->written()) + "; it takes a list of configurations",
                kNameFiles);
  std::map<std::string, size_t> places;
  for (const Node& item : given->items()) {
    DatasetConfig made = read_config(item);
    const auto [place, is_new] = places.try_emplace(made.name, out.size());
    if (is_new) out.emplace_back();
    out[place->second] = std::move(made);
  }
  return out;
}

}  // namespace

bool is_split_name(const std::string& name) {
  bool is_part = false;
  for (const char letter : name) {
    const bool is_word = std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' ||
                         static_cast<unsigned char>(letter) >= 0x80;
    if (!is_word && !(letter == '.' && is_part)) return false;
    is_part = is_word;
  }
  return is_part;
}

DatasetCard read_card(const fs::path& directory) {
  const fs::path readme = directory / "README.md", alone = directory / ".huggingface.yaml";
  const Node card = yaml_of(front_matter(content_of_card(readme)), readme);
  const Node over = yaml_of(content_of_card(alone), alone);
  const auto given = [&](const char* key) {
    const Node* value = over.find(key);
    return value != nullptr ? value : card.find(key);
  };
  const Node* configs = given("configs");
  DatasetCard out{read_configs(configs), std::nullopt, read_infos(given("dataset_info"))};
  for (const DatasetConfig& config : out.configs) {
    if (out.configs.size() > 1 && config.name != "default" && !config.is_default) continue;
    if (out.default_config)
      throw Error(
          ErrorCode::input, configs->where(),
          "the configurations " + *out.default_config + " and " + config.name + " are both the default",
          "Mark only one of them as the default in the card.");
    out.default_config = config.name;
  }
  if (!out.default_config && out.rows.size() == 1) out.default_config = out.rows.begin()->first;
  return out;
}

}  // namespace heddle
