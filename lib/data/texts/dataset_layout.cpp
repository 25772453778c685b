// Finds the configurations, splits and file formats of a data set.
#include "lib/data/texts/dataset_layout.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/data/dataset.h"
#include "lib/data/texts/dataset_card.h"
#include "lib/data/texts/file_kinds.h"
#include "lib/data/texts/file_patterns.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;  // relative to the data set's directory
using SplitNames = std::vector<std::pair<std::string, Names>>;

constexpr const char* kNumbers =
    "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*";  // names of push_to_hub
constexpr const char* kNameTheFiles = "List the data files instead: one file, or a list of files.";
// Words that datasets takes for a split in file and directory names.
struct SplitWords {
  const char* split;
  std::array<std::string_view, 4> words;
};
constexpr std::array<SplitWords, 3> kSplitWords = {{
    {"train", {"train", "training", "", ""}},
    {"validation", {"validation", "valid", "dev", "val"}},
    {"test", {"test", "testing", "eval", "evaluation"}},
}};
constexpr std::array<const char*, 4> kInDirectories = {"**/W/**", "**/WS*/**", "**/*SW/**", "**/*SWS*/**"};
constexpr std::array<const char*, 2> kInFiles = {"**/WS*", "**/*SWS*"};
constexpr const char* kSeparators = "[-._ 0-9]";

// Replaces W by a word and S by a separator in a pattern.
std::string spelled(std::string_view pattern, std::string_view word) {
  std::string out;
  for (const char letter : pattern)
    out += letter == 'W' ? std::string(word) : letter == 'S' ? kSeparators : std::string(1, letter);
  return out;
}

template <size_t N>
SplitPatterns patterns_of_words(const std::array<const char*, N>& patterns) {
  SplitPatterns out;
  for (const SplitWords& words : kSplitWords) {
    out.emplace_back(words.split, Names());
    for (const std::string_view word : words.words)
      for (const char* pattern : patterns)
        if (!word.empty()) out.back().second.push_back(spelled(pattern, word));
  }
  return out;
}

// Returns "train" for "train-00000-of-00002.parquet"; empty: no text before the numbers.
std::string numbered_split(std::string_view name) {
  for (size_t dash = name.rfind('-'); dash != name.npos && dash > 0; dash = name.rfind('-', dash - 1))
    if (matches_part(name.substr(dash), kNumbers)) return std::string(name.substr(0, dash));
  return "";
}

class LayoutReader {
 public:
  explicit LayoutReader(const LayoutQuery& query) : query_(query), tree_(query.directory) {}

  std::vector<SplitFiles> read() {
    refuse_script();
    const DatasetCard card = read_card(query_.directory);
    SplitNames found = card.configs.empty() ? without_card(card) : by_card(card);
    std::vector<SplitFiles> out;
    const std::string config =
        query_.config.empty() ? card.default_config.value_or("default") : query_.config;
    const auto counts = card.rows.find(config);
    if (counts != card.rows.end() && query_.is_whole) check_splits(counts->second, found);
    for (auto& [split, names] : found) {
      out.push_back({split, {}, std::nullopt});
      for (const std::string& name : names) out.back().files.push_back(query_.directory / name);
      if (counts != card.rows.end() && counts->second.contains(split))
        out.back().rows = counts->second.at(split);
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const {
    throw Error(ErrorCode::input, query_.name.where(), what, hint);
  }
  [[noreturn]] void refuse_empty(const fs::path& directory) const {
    throw MissingData(
        {{query_.name.where(), directory.string() + " contains no data files (" + kReadEndings + ")"}});
  }

  void refuse_script() const {
    const fs::path name = fs::path(query_.name.as_text()) / "";  // so that its parent has no trailing slash
    const fs::path script = query_.directory / (name.parent_path().filename().string() + ".py");
    std::error_code ignored;
    if (fs::is_regular_file(script, ignored))
      refuse(
          "the data set has a loading script, " + script.filename().string() + ", which heddle does not run",
          "Use another revision (revision: refs/convert/parquet), or list the data files instead.");
  }

  // Checks that the splits listed by the card are those of the files.
  void check_splits(const RowCounts& counts, const SplitNames& found) const {
    std::set<std::string> listed, there;
    for (const auto& [split, rows] : counts) listed.insert(split);
    for (const auto& [split, names] : found) there.insert(split);
    if (listed.empty() || listed == there) return;
    const auto joined = [](const std::set<std::string>& names) {
      return text::join(std::vector<std::string>(names.begin(), names.end()));
    };
    refuse("dataset_info of the card lists the splits " + joined(listed) +
               ", but the files have the splits " + joined(there),
           "Correct the card, or list the data files instead.");
  }

  SplitNames without_card(const DatasetCard& card) {
    const std::string& name =
        query_.config.empty() && card.default_config ? *card.default_config : query_.config;
    if (!name.empty() && name != "default") refuse_config(name, {"default"});
    SplitNames found = by_names("");
    const FileKind kind = kind_of(found);
    for (auto& [split, names] : found) {
      std::erase_if(names, [&](const std::string& file) { return !has_ending_of(kind, file); });
      check_kind(split, names, kind);
    }
    return found;
  }

  SplitNames by_card(const DatasetCard& card) {
    const DatasetConfig& first = card.configs.front();
    std::optional<FileKind> kind;
    if (query_.is_whole) kind = kind_of(first.files ? resolve("", *first.files) : by_names(""));
    if (query_.is_whole)
      for (const DatasetConfig& config : card.configs)
        if (!config.files) patterns_by_names(config.data_dir);
    const DatasetConfig& config = chosen(card);
    SplitNames found = config.files ? resolve(config.data_dir, *config.files) : by_names(config.data_dir);
    if (!kind) kind = kind_of(found);
    for (const auto& [split, names] : found) {
      if (names.empty()) refuse("no file matches the patterns of the split " + split, kNameTheFiles);
      check_kind(split, names, *kind);
    }
    return found;
  }

  const DatasetConfig& chosen(const DatasetCard& card) const {
    Names names;
    for (const DatasetConfig& config : card.configs) names.push_back(config.name);
    if (query_.config.empty() && !card.default_config)
      refuse("the data set has the configurations " + text::join(names) + ", but none is the default",
             how_to_choose(names.front()));
    const std::string& name = query_.config.empty() ? *card.default_config : query_.config;
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) refuse_config(name, names);
    return card.configs[static_cast<size_t>(at - names.begin())];
  }

  [[noreturn]] void refuse_config(const std::string& name, const Names& names) const {
    const std::string near = text::nearest(name, names);
    refuse("the data set has no configuration '" + name + "'; its configurations: " + text::join(names),
           how_to_choose(near.empty() ? names.front() : near));
  }
  std::string how_to_choose(const std::string& name) const {
    return query_.takes_config ? "Choose one: name: " + name : kNameTheFiles;
  }

  // Returns the files of each split, relative to the data set's directory. The file of a pattern without
  // wildcards must exist.
  SplitNames resolve(const std::string& directory, const SplitPatterns& patterns) {
    SplitNames out;
    for (const auto& [split, of_split] : patterns) {
      out.emplace_back(split, Names());
      for (const std::string& pattern : of_split) {
        Names files = all_matching(directory, pattern);
        std::erase_if(files, [](const std::string& file) { return !is_data_file(file); });
        if (files.empty() && !has_wildcards(pattern))
          throw MissingData(
              {{query_.name.where(), "the data set's card lists " + pattern + " for the split " + split +
                                         ", but no such data file exists"}});
        out.back().second.insert(out.back().second.end(), files.begin(), files.end());
      }
    }
    return out;
  }

  Names all_matching(const std::string& directory, const std::string& pattern) {
    const bool has_slash = directory.empty() || directory.ends_with('/');
    return tree_.matching(directory + (has_slash ? "" : "/") + pattern);
  }

  SplitNames by_names(const std::string& directory) {
    return resolve(directory, patterns_by_names(directory));
  }

  const SplitPatterns& patterns_by_names(const std::string& directory) {
    const auto [found, is_new] = by_names_.try_emplace(directory);
    if (is_new) found->second = find_patterns(directory);
    return found->second;
  }

  // Finds splits by names of push_to_hub, else by directory names, else by file names; else all files are the
  // split train.
  SplitPatterns find_patterns(const std::string& directory) {
    if (SplitPatterns numbered = patterns_by_numbers(directory); !numbered.empty()) return numbered;
    using Patterns = SplitPatterns::value_type;
    static const std::array<SplitPatterns, 5> kinds = {
        SplitPatterns{Patterns("logs", {"**/*.eval"})},
        SplitPatterns{Patterns("test", Names{"**/task.toml", "**/instruction.md"})},
        patterns_of_words(kInDirectories), patterns_of_words(kInFiles),
        SplitPatterns{Patterns("train", {"**"})}};
    for (const SplitPatterns& patterns : kinds) {
      SplitPatterns found;
      std::copy_if(patterns.begin(), patterns.end(), std::back_inserter(found), [&](const auto& of_split) {
        return std::any_of(of_split.second.begin(), of_split.second.end(), [&](const std::string& pattern) {
          return !all_matching(directory, pattern).empty();
        });
      });
      if (!found.empty()) return found;
    }
    refuse_empty(query_.directory / directory);
  }

  SplitPatterns patterns_by_numbers(const std::string& directory) {
    std::set<std::string> splits;
    for (const std::string& file : all_matching(directory, std::string("data/*") + kNumbers)) {
      const std::string split = numbered_split(fs::path(file).filename().string());
      if (!is_split_name(split))
        refuse("the file " + file + " names the split '" + split +
                   "'; split names consist of letters, digits, _ and dots",
               kNameTheFiles);
      splits.insert(split);
    }
    SplitPatterns out;
    const auto add = [&](const std::string& split) {
      out.emplace_back(split, Names{"data/" + split + kNumbers});
    };
    for (const SplitWords& words : kSplitWords)
      if (splits.erase(words.split) > 0) add(words.split);
    for (const std::string& split : splits) add(split);
    return out;
  }

  // Returns the common format of all splits.
  FileKind kind_of(const SplitNames& found) const {
    FileKind kind = FileKind::none;
    for (const auto& [split, names] : found) {
      const InferredKind inferred = infer_kind(names);
      if (inferred.kind == FileKind::none) {
        if (found.size() == 1) refuse_empty(query_.directory);
        refuse("the split " + split + " has no data files", kNameTheFiles);
      }
      if (inferred.kind == FileKind::other)
        refuse("most files of the split " + split + " are " + inferred.ending + " files; heddle reads " +
                   kReadEndings,
               kNameTheFiles);
      if (kind != FileKind::none && inferred.kind != kind)
        refuse("the split " + found.front().first + " has " + kind_name(kind) + " files, but the split " +
                   split + " has " + kind_name(inferred.kind) + " files",
               kNameTheFiles);
      kind = inferred.kind;
    }
    return kind;
  }

  void check_kind(const std::string& split, const Names& names, FileKind kind) const {
    for (const std::string& name : names)
      if (kind_of_file(name) != kind)
        refuse("the split " + split + " has the file " + name + " among its " + kind_name(kind) +
                   " files, which heddle reads by their endings",
               kNameTheFiles);
  }

  const LayoutQuery& query_;
  FileTree tree_;
  std::map<std::string, SplitPatterns> by_names_;  // by directory
};

}  // namespace

std::vector<SplitFiles> read_layout(const LayoutQuery& query) {
  return LayoutReader(query).read();
}

}  // namespace heddle
