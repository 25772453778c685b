// Reads the section of a blend: files, split and numbers of samples.
#include "lib/data/blend/blend_set.h"

#include <glob.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/data/section_keys.h"
#include "lib/data/tokens/token_files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using megatron::BlendFile;
using megatron::Part;

struct BlendSection {
  Node paths, tokenizer, split = Node::text("900,50,50");
  int64_t seq_length = 2048, seed = 1234;
  std::optional<std::string> splits_to_build, index_mapping_dir;
  std::optional<int64_t> num_train_samples, num_val_samples, num_test_samples, trainer_limit_val_batches;
  bool create_attention_mask = false, mmap_bin_files = true;
};

const ConfigSchema<BlendSection>& blend_schema() {
  using C = BlendSection;
  const Range<int64_t> some = at_least<int64_t>(1);
  static const auto schema =
      ConfigSchema<C>()
          .field("paths", &C::paths,
                 "Token files: NAME of NAME.bin and NAME.idx, a pattern, a list of these, a list that "
                 "alternates weights and names, "
                 "a map of "
                 "these for train, validation and test, or a JSON file with one of these. Required.")
          .field("seq_length", &C::seq_length, "Number of tokens per row.", some)
          .field("split", &C::split,
                 "Shares of the documents for train, validation and test. null: all documents are in each.")
          .field("splits_to_build", &C::splits_to_build,
                 "Split to use: train, validation or test. Default: train for the training set, validation "
                 "for a validation set.",
                 OneOf{{"train", "validation", "test"}})
          .field("seed", &C::seed, "Seed of shuffling documents and samples; independent of the run's seed.",
                 Range<int64_t>{0, (int64_t{1} << 32) - 1})
          .field("num_train_samples", &C::num_train_samples,
                 "Number of training samples. Default: max_steps * global_batch_size.", some)
          .field("num_val_samples", &C::num_val_samples,
                 "Number of validation samples. Default: (max_steps / val_every_steps) * global_batch_size.",
                 some)
          .field("num_test_samples", &C::num_test_samples,
                 "Number of test samples. Default: as num_val_samples.", some)
          .field("create_attention_mask", &C::create_attention_mask, "Add attention masks to the rows.")
          .later("create_attention_mask", "attention is causal over the whole row without a mask")
          .field("tokenizer", &C::tokenizer, "Ignored: the files contain tokens.")
          .field("trainer_limit_val_batches", &C::trainer_limit_val_batches,
                 "Ignored, as in NeMo AutoModel: set num_val_samples.")
          .field("index_mapping_dir", &C::index_mapping_dir,
                 "Ignored: building the index is faster than reading it.")
          .field("mmap_bin_files", &C::mmap_bin_files, "Ignored: files are always memory-mapped.");
  return schema;
}

bool ends_with(const std::string& text, std::string_view ending) {
  return text.ends_with(ending);
}

std::string without_ending(const std::string& name) {
  return ends_with(name, ".bin") || ends_with(name, ".idx") ? name.substr(0, name.size() - 4) : name;
}

// Reads the section and finds the files of one split.
class BlendReader {
 public:
  BlendReader(const Node& section, const DataFacts& facts)
      : section_(section), facts_(facts), words_(blend_schema().read(section)) {}

  std::unique_ptr<IDataset> open() {
    megatron::BlendConfig config;
    config.part = part();
    config.sequence = words_.seq_length;
    config.seed = static_cast<uint32_t>(words_.seed);
    config.split = split();
    config.split_where = recipe::key_location(section_, "split");
    const Node* paths = section_.find("paths");
    if (paths == nullptr || paths->is_null())
      throw Error(ErrorCode::config, section_.where(), "paths is missing");
    add(*paths, true);
    if (is_by_part_) config.split.clear();
    if (!missing_.empty()) throw MissingData(missing_);
    config.files = std::move(files_);
    config.samples = samples();
    return megatron::open_blend(config, facts_.vocabulary);
  }

 private:
  // A text of three numbers becomes a list in a recipe.
  std::string split() const {
    if (words_.split.is_null()) return "";
    if (!words_.split.is_list()) return words_.split.as_text();
    std::string out;
    for (const Node& number : words_.split.items()) {
      if (!(number.as_real() >= 0))
        throw Error(ErrorCode::config, number.where(),
                    "expected a number of at least 0, got " + number.written());
      out += (out.empty() ? "" : ",") + number.written();
    }
    return out;
  }

  Part part() const {
    const std::string word = words_.splits_to_build.value_or(facts_.validation ? "validation" : "train");
    return word == "train" ? Part::train : word == "validation" ? Part::validation : Part::test;
  }

  std::optional<int64_t> samples() const {
    const std::optional<int64_t> given = part() == Part::train        ? words_.num_train_samples
                                         : part() == Part::validation ? words_.num_val_samples
                                                                      : words_.num_test_samples;
    if (given) return given;
    return facts_.samples_wanted > 0 ? std::optional(facts_.samples_wanted) : std::nullopt;
  }

  void add(const Node& paths, bool may_be_map) {
    if (paths.is_map() && may_be_map) return add_part(paths);
    if (paths.is_list()) return add_list(paths);
    const std::string name = recipe::expand_home(paths.as_text());
    if (ends_with(name, ".json")) return add_json(name, paths);
    add_names(name, 0, paths.where());
  }

  void add_part(const Node& map) {
    is_by_part_ = true;
    const std::vector<std::string> words = part() == Part::train ? std::vector<std::string>{"train"}
                                           : part() == Part::validation
                                               ? std::vector<std::string>{"validation", "valid", "val", "dev"}
                                               : std::vector<std::string>{"test"};
    for (const std::string& word : words)
      if (const Node* own = map.find(word); own != nullptr && !own->is_null()) return add(*own, false);
    throw Error(ErrorCode::config, map.where(), "paths has no entry for " + words.front(),
                "the keys are train, validation and test");
  }

  void add_json(const std::string& file, const Node& paths) {
    std::ifstream in(file);
    if (!in) {
      missing_.push_back({paths.where(), "the file '" + file + "' does not exist"});
      return;
    }
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    add(config::read_text(text, file), true);  // JSON is a subset of YAML
  }

  static std::optional<double> weight_of(const Node& item) {
    if (item.kind() == Node::Kind::integer || item.kind() == Node::Kind::real) return item.as_real();
    if (item.kind() != Node::Kind::text) return std::nullopt;
    char* end = nullptr;
    const double value = std::strtod(item.as_text().c_str(), &end);
    return *end == '\0' && end != item.as_text().c_str() ? std::optional(value) : std::nullopt;
  }

  // Adds names, or pairs of a weight and a name.
  void add_list(const Node& list) {
    const auto& items = list.items();
    const bool weighted = !items.empty() && weight_of(items.front()).has_value();
    for (size_t i = 0; i < items.size(); ++i) {
      double weight = 0;
      if (weighted) {
        const std::optional<double> given = weight_of(items[i]);
        if (!given || !(*given > 0) || i + 1 == items.size())
          throw Error(ErrorCode::config, items[i].where(),
                      "expected a weight above 0 and a name after it, got " + items[i].written(),
                      "paths: [30, data/a, 70, data/b]");
        weight = *given;
        ++i;
      }
      add_names(recipe::expand_home(items[i].as_text()), weight, items[i].where());
    }
  }

  void add_names(const std::string& name, double weight, const std::string& where) {
    std::set<std::string> names;
    glob_t found{};
    const bool is_pattern = name.find_first_of("*?[") != std::string::npos;
    if (is_pattern && glob(name.c_str(), 0, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc; ++i)
        if (const std::string one = found.gl_pathv[i]; ends_with(one, ".bin") || ends_with(one, ".idx"))
          names.insert(without_ending(one));
    globfree(&found);
    if (!is_pattern) names.insert(without_ending(name));
    if (names.empty())
      missing_.push_back({where, "no file .bin or .idx matches '" + text::excerpt(name) + "'"});
    for (const std::string& one : names) {
      std::error_code ignored;
      for (const char* ending : {".bin", ".idx"})
        if (!fs::is_regular_file(one + ending, ignored))
          missing_.push_back({where, "the file '" + one + ending + "' does not exist"});
      files_.push_back({one, weight});
    }
  }

  const Node& section_;
  const DataFacts& facts_;
  const BlendSection words_;
  bool is_by_part_ = false;
  std::vector<BlendFile> files_;
  std::vector<MissingData::One> missing_;
};

OfferedDataset offered_blend() {
  OfferedDataset offered;
  offered.name = kMegatronBlend;
  offered.length_key = "seq_length";
  offered.fields = blend_schema().fields();
  offered.resolve = [](const Node& section) {
    const BlendSection words = blend_schema().read(section);
    return Resolved{blend_schema().write(words), blend_schema().not_built(words)};
  };
  offered.make = [](const Node& section, const DataFacts& facts) {
    return BlendReader(section, facts).open();
  };
  return offered;
}

}  // namespace

const OfferedDataset& blend_files() {
  static const OfferedDataset offered = offered_blend();
  return offered;
}

}  // namespace heddle
