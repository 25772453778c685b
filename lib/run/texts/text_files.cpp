// Finds the files of texts: what is named, what a README says of them, what their names say.
#include "lib/run/texts/text_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/data/dataset.h"
#include "lib/run/model/named_place.h"
#include "lib/run/recipe/component.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Files = std::vector<fs::path>;
using Splits = std::map<std::string, Files>;

constexpr std::array<std::string_view, 4> kEndings = {".parquet", ".arrow", ".jsonl", ".json"};
// Words of the library datasets for splits in names of files.
struct SplitWords {
  const char* split;
  std::array<std::string_view, 4> words;
};
constexpr std::array<SplitWords, 3> kSplitWords = {{
    {"train", {"train", "training", "", ""}},
    {"validation", {"validation", "valid", "val", "dev"}},
    {"test", {"test", "testing", "eval", "evaluation"}},
}};
constexpr std::array<std::string_view, 3> kDatasetNotes = {"dataset_info.json", "dataset_dict.json",
                                                           "state.json"};

bool is_of_texts(const fs::path& file) {
  const std::string name = file.filename().string();
  if (std::find(kDatasetNotes.begin(), kDatasetNotes.end(), name) != kDatasetNotes.end() ||
      name.starts_with("."))
    return false;
  return std::find(kEndings.begin(), kEndings.end(), file.extension().string()) != kEndings.end();
}

// All in a directory and below it, by name; names relative to it.
Files files_below(const fs::path& directory) {
  Files out;
  std::error_code failed;
  for (auto at = fs::recursive_directory_iterator(directory, fs::directory_options::follow_directory_symlink,
                                                  failed);
       !failed && at != fs::recursive_directory_iterator(); at.increment(failed)) {
    std::error_code ignored;
    if (at->path().filename().string().starts_with(".")) {
      at.disable_recursion_pending();
    } else if (is_of_texts(at->path()) && at->is_regular_file(ignored)) {
      out.push_back(at->path().lexically_relative(directory));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The words of a path between separators.
std::set<std::string> words_of(const fs::path& path) {
  std::set<std::string> out;
  std::string word;
  for (const char letter : text::lower(path.string()) + "/") {
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0) {
      word += letter;
    } else {
      out.insert(std::exchange(word, ""));
    }
  }
  return out;
}

std::string split_of(const fs::path& file) {
  const std::set<std::string> words = words_of(file);
  for (const SplitWords& one : kSplitWords)
    for (const std::string_view word : one.words)
      if (!word.empty() && words.contains(std::string(word))) return one.split;
  return "";
}

// Files of one kind: the first that there is of the endings.
Splits by_names(const fs::path& directory) {
  Splits out;
  const Files all = files_below(directory);
  for (const std::string_view ending : kEndings) {
    for (const fs::path& file : all)
      if (file.extension() == ending) out[split_of(file)].push_back(directory / file);
    if (!out.empty()) break;
  }
  // Files that name no split are of training where no file names one.
  if (out.size() == 1 && out.contains("")) return {{"train", std::move(out[""])}};
  out.erase("");
  return out;
}

Files matching(const fs::path& directory, const std::string& pattern) {
  glob_t found{};
  Files out;
  if (glob((directory / pattern).c_str(), 0, nullptr, &found) == 0)
    out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return out;
}

void add_matching(Files& to, const fs::path& directory, const Node& patterns) {
  if (patterns.kind() == Node::Kind::text) {
    const Files more = matching(directory, patterns.as_text());
    to.insert(to.end(), more.begin(), more.end());
  }
  for (const Node& one : patterns.items()) add_matching(to, directory, one);
}

std::string word_at(const Node& map, const char* key, const std::string& absent) {
  const Node* value = map.find(key);
  return value != nullptr && value->kind() == Node::Kind::text ? value->as_text() : absent;
}

// data_files of one configuration: patterns, or patterns by split.
Splits data_files(const fs::path& directory, const Node& section) {
  Splits out;
  bool has_splits = false;
  for (const Node& one : section.items())
    if (one.is_map()) {
      has_splits = true;
      if (const Node* path = one.find("path"))
        add_matching(out[word_at(one, "split", "train")], directory, *path);
    }
  for (const auto& [split, patterns] : section.entries()) {
    has_splits = true;
    add_matching(out[split], directory, patterns);
  }
  if (!has_splits) add_matching(out["train"], directory, section);
  return out;
}

// The YAML before the text of a README.md; null: there is none that can be read.
Node front_matter(const fs::path& readme) {
  std::ifstream in(readme);
  std::string line, yaml;
  if (!std::getline(in, line) || !line.starts_with("---")) return Node();
  while (std::getline(in, line) && !line.starts_with("---")) yaml += line + "\n";
  try {
    return config::read_text(yaml, readme.string());
  } catch (const Error&) {
    return Node();
  }
}

// What the README says of a data set with configurations; empty: nothing.
std::optional<Splits> by_readme(const fs::path& directory, const TextQuery& query) {
  const Node front = front_matter(directory / "README.md");
  const Node* all = front.find("configs");
  if (all == nullptr || all->size() == 0) return std::nullopt;
  std::vector<std::string> names;
  const Node *chosen = nullptr, *only = nullptr;
  for (const Node& one : all->items()) {
    const Node* files = one.find("data_files");
    if (files == nullptr) continue;
    const std::string name = word_at(one, "config_name", "default");
    const Node* marked = one.find("default");
    const bool is_default = name == "default" || (marked != nullptr && marked->written() == "true");
    if (query.config.empty() ? is_default : name == query.config) chosen = files;
    only = files;
    names.push_back(name);
  }
  if (chosen == nullptr && query.config.empty() && names.size() == 1) chosen = only;
  if (chosen == nullptr && (!names.empty() || !query.config.empty()))
    throw Error(ErrorCode::input, query.name.where(),
                (query.config.empty() ? std::string("the data set has several configurations")
                                      : "the data set has no configuration '" + query.config + "'") +
                    "; there is: " + text::join(names),
                "choose one: name: " + (names.empty() ? std::string("default") : names.front()));
  return chosen == nullptr ? std::nullopt : std::optional(data_files(directory, *chosen));
}

bool is_json(const fs::path& file) {
  const std::string ending = text::lower(file.extension().string());
  return ending == ".json" || ending == ".jsonl";
}

// A FIFO or a device, which is there and is no file.
void refuse_irregular_text(const fs::path& file, const Node& named) {
  try {
    refuse_irregular(file, ErrorCode::input);
  } catch (const Error& error) {
    throw Error(error.code(), named.where(), "'" + file.string() + "' " + error.message(), error.hint());
  }
}

class TextFinder {
 public:
  explicit TextFinder(const TextQuery& query) : query_(query) {}

  TextFiles find() {
    if (query_.name.is_list()) return listed();
    const fs::path name = recipe::path_of(query_.name.as_text());
    std::error_code ignored;
    const fs::path place = named_place(name, Named::dataset, query_.revision);
    if (fs::is_regular_file(place, ignored)) return of_file(place);
    if (!fs::is_directory(place, ignored)) {
      refuse_irregular_text(place, query_.name);
      const std::string hint = named_place_hint(name, Named::dataset);
      throw MissingData({{query_.name.where(), "'" + name.string() + "' is not there" +
                                                   (hint.empty() ? std::string() : "; " + hint)}});
    }
    return of_directory(place);
  }

 private:
  TextFiles of_file(const fs::path& file) const {
    TextFiles out;
    out.is_local = is_json(file);
    out.of_split[""] = {file};
    return out;
  }

  TextFiles listed() const {
    TextFiles out;
    std::vector<MissingData::One> missing;
    for (const Node& one : query_.name.items()) {
      const fs::path file = recipe::path_of(one.as_text());
      std::error_code ignored;
      refuse_irregular_text(file, one);
      if (!fs::is_regular_file(file, ignored))
        missing.push_back({one.where(), "'" + file.string() + "' is not there, or no file"});
      out.of_split[""].push_back(file);
    }
    if (!missing.empty()) throw MissingData(missing);
    out.is_local = true;
    return out;
  }

  TextFiles of_directory(const fs::path& directory) const {
    std::optional<Splits> said = by_readme(directory, query_);
    Splits all = said ? std::move(*said) : by_names(directory);
    std::erase_if(all, [](const auto& one) { return one.second.empty(); });
    if (all.empty())
      throw MissingData({{query_.name.where(),
                          directory.string() + " holds no files of texts (" +
                              text::join(std::vector<std::string>(kEndings.begin(), kEndings.end())) + ")"}});
    if (splits().empty()) return {std::move(all), false};
    TextFiles out;
    for (const std::string& split : splits()) {
      const auto found = all.find(split);
      if (found == all.end()) throw no_split(split, all);
      out.of_split[split] = found->second;
    }
    return out;
  }

  Error no_split(const std::string& split, const Splits& all) const {
    std::vector<std::string> names;
    for (const auto& [name, files] : all) names.push_back(name);
    const std::string near = text::nearest(split, names);
    return Error(ErrorCode::input, query_.name.where(),
                 "the data set has no split '" + split + "'; there is: " + text::join(names),
                 near.empty() ? "choose one of them" : "did you mean '" + near + "'?");
  }

  std::vector<std::string> splits() const { return splits_in(query_.split); }

  const TextQuery& query_;
};

}  // namespace

TextFiles find_texts(const TextQuery& query) {
  return TextFinder(query).find();
}

std::vector<std::string> splits_in(const std::string& expression) {
  std::vector<std::string> out;
  std::string word;
  bool is_slice = false;
  for (const char letter : expression + "+") {
    if (letter == '[') is_slice = true;
    if (letter == '+' && !word.empty()) {
      if (std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
      word.clear();
      is_slice = false;
    } else if (!is_slice && letter != ' ' && letter != '+') {
      word += letter;
    }
  }
  return out;
}

}  // namespace heddle
