// Finds the files of texts: named files, and those of the splits of a data set.
#include "lib/data/texts/text_files.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/data/dataset.h"
#include "lib/data/hub_directory.h"
#include "lib/data/section_keys.h"
#include "lib/data/texts/dataset_layout.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

bool is_json(const fs::path& file) {
  const std::string ending = text::lower(file.extension().string());
  return ending == ".json" || ending == ".jsonl";
}

// Throws for a FIFO or a device, which exists but is not a file.
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
    const fs::path name = recipe::expand_home(query_.name.as_text());
    std::error_code ignored;
    const fs::path place = hub_directory(name, HubKind::dataset, query_.revision);
    if (fs::is_regular_file(place, ignored)) return of_file(place);
    if (!fs::is_directory(place, ignored)) {
      refuse_irregular_text(place, query_.name);
      const std::string hint = hub_directory_hint(name, HubKind::dataset);
      throw MissingData({{query_.name.where(), "'" + name.string() + "' does not exist" +
                                                   (hint.empty() ? std::string() : "; " + hint)}});
    }
    return of_directory(place, place == name);
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
      const fs::path file = recipe::expand_home(one.as_text());
      std::error_code ignored;
      refuse_irregular_text(file, one);
      if (!fs::is_regular_file(file, ignored))
        missing.push_back({one.where(), "'" + file.string() + "' does not exist or is not a file"});
      out.of_split[""].push_back(file);
    }
    if (!missing.empty()) throw MissingData(missing);
    out.is_local = true;
    return out;
  }

  // A data set in the hub's cache may lack files of configurations that were not downloaded.
  TextFiles of_directory(const fs::path& directory, bool is_whole) const {
    TextFiles out;
    std::vector<SplitFiles> all =
        read_layout({directory, query_.name, query_.config, is_whole, query_.takes_config});
    for (const SplitFiles& split : all) {
      out.splits.push_back(split.split);
      if (split.rows) out.rows[split.split] = *split.rows;
    }
    const std::vector<std::string> asked = query_.split == kAllSplits ? out.splits : splits_in(query_.split);
    for (SplitFiles& split : all)
      if (asked.empty() || std::find(asked.begin(), asked.end(), split.split) != asked.end())
        out.of_split[split.split] = std::move(split.files);
    for (const std::string& split : asked)
      if (!out.of_split.contains(split)) throw no_split(split, out.splits);
    return out;
  }

  Error no_split(const std::string& split, const std::vector<std::string>& names) const {
    const std::string near = text::nearest(split, names);
    return Error(ErrorCode::input, query_.name.where(),
                 "the data set has no split '" + split + "'; available: " + text::join(names),
                 near.empty() ? "choose one of them" : "did you mean '" + near + "'?");
  }

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
