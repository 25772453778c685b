// Reads the keys of token files, and opens the files and their sample lengths.
#include "lib/data/tokens/token_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/sample_order.h"
#include "lib/data/section_keys.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_note.h"

namespace heddle {
namespace {

const std::array<std::string_view, 4> kPrefixes = {"", "numpy.", "np.", "torch."};  // prefixes of a dtype
const std::map<std::string, TokenType> kTypes = {{"uint8", TokenType::uint8},   {"int8", TokenType::int8},
                                                 {"uint16", TokenType::uint16}, {"int16", TokenType::int16},
                                                 {"uint32", TokenType::uint32}, {"int32", TokenType::int32},
                                                 {"int64", TokenType::int64}};

}  // namespace

template <>
struct FieldType<TokenType> {
  static std::string type_name() { return "dtype"; }
  static TokenType read(const Node& value) {
    const std::string& word = value.as_text();
    const size_t begin = word.rfind('.') + 1;  // "numpy.uint16" becomes uint16
    const auto found = kTypes.find(word.substr(begin));
    const bool known =
        std::find(kPrefixes.begin(), kPrefixes.end(), word.substr(0, begin)) != kPrefixes.end();
    if (!known || found == kTypes.end())
      throw Error(ErrorCode::config, value.where(),
                  "tokens must be integers of 8 to 64 bits, got '" + text::excerpt(word) + "'");
    return found->second;
  }
  static Node write(const TokenType& value) {
    for (const auto& [word, type] : kTypes)
      if (type == value) return Node::text(word);
    return Node();
  }
};

namespace recipe {
namespace {

struct DataFields {
  std::optional<std::string> target;
  Node file_pattern, lengths;
  std::optional<int64_t> seq_len;
  bool shuffle_files = false;
  bool align_to_bos = false;
  std::optional<int64_t> bos_token;
  std::optional<TokenType> dtype;
  std::optional<int64_t> reset_attention_at, limit_dataset_samples;
};

const ConfigSchema<DataFields>& schema() {
  static const auto schema =
      ConfigSchema<DataFields>()
          .field("_target_", &DataFields::target, "Class of the data set: NanogptDataset.")
          .field("file_pattern", &DataFields::file_pattern,
                 "Token files: a shell pattern, or a list of patterns.")
          .field("seq_len", &DataFields::seq_len,
                 "Number of tokens per sample; with lengths, per row, which contains one sample.",
                 positive("", kLargestSize))
          .field("lengths", &DataFields::lengths,
                 "Files with the sample lengths, one per token file, as file_pattern. null: samples "
                 "are cut from the sequence of tokens.")
          .field("shuffle_files", &DataFields::shuffle_files, "Shuffle the order of the files.")
          .field("align_to_bos", &DataFields::align_to_bos, "Start each sample at a bos_token.")
          .later("align_to_bos", "samples are cut one after the other")
          .field("bos_token", &DataFields::bos_token, "Token that begins a document, for align_to_bos.")
          .field("dtype", &DataFields::dtype, "Token dtype of files without a header.")
          .field("reset_attention_at", &DataFields::reset_attention_at,
                 "Token that ends a document: attention does not cross it, and positions restart "
                 "after it. null: a sample is one document.",
                 at_least<int64_t>(0))
          .field("limit_dataset_samples", &DataFields::limit_dataset_samples,
                 "Number of samples to use, from the start of the files, before shuffling and packing. "
                 "null: all samples.",
                 positive("or null"));
  return schema;
}

// Returns the words of a word or a list of words.
std::vector<std::string> words_of(const Node& value) {
  if (value.is_list() && value.size() == 0)
    throw Error(ErrorCode::config, value.where(), "the list is empty", "give a file or a shell pattern");
  return value.is_list() ? FieldType<std::vector<std::string>>::read(value)
                         : std::vector<std::string>{value.as_text()};
}

std::vector<std::string> patterns_of(const Node& section) {
  const Node* pattern = section.find("file_pattern");
  if (pattern == nullptr || pattern->is_null())
    throw Error(ErrorCode::config, section.where(), "file_pattern is missing",
                "file_pattern: data/train*.bin; make a token file from texts with heddle data");
  return words_of(*pattern);
}

}  // namespace

std::vector<FieldInfo> token_file_fields() {
  return schema().fields();
}

TokenFilesSection read_token_files(const Node& section, SectionErrors& found) {
  const DataFields words = schema().read(section, found);
  TokenFilesSection out;
  found.check({"file_pattern"}, [&] { out.patterns = patterns_of(section); });
  found.check({"lengths"}, [&] {
    if (!words.lengths.is_null()) out.lengths = words_of(words.lengths);
  });
  out.sequence_length = words.seq_len;
  out.shuffle_files = words.shuffle_files ? Shuffle::on : Shuffle::off;
  out.bare = words.dtype;
  out.document_end = words.reset_attention_at;
  out.most_samples = words.limit_dataset_samples;
  out.not_built = schema().not_built(words);
  return out;
}

TokenFilesSection read_token_files(const Node& section) {
  SectionErrors found;
  TokenFilesSection out = read_token_files(section, found);
  found.errors.raise();
  return out;
}

}  // namespace recipe

namespace {

using recipe::key_location;

// Keeps the first `most` samples of all files.
void keep_first(std::vector<std::vector<int64_t>>& lengths, int64_t most) {
  for (std::vector<int64_t>& of_file : lengths) {
    of_file.resize(std::min(of_file.size(), static_cast<size_t>(most)));
    most -= static_cast<int64_t>(of_file.size());
  }
}

void look_for(const std::vector<std::string>& patterns, const std::string& where,
              std::vector<MissingData::One>& missing) {
  for (const std::string& pattern : matching_files(patterns).lacking)
    missing.push_back({where, "no file matches '" + text::excerpt(pattern) + "'"});
}

// Describes the tokenizer of a file; empty: unknown.
std::string maker_of(const TokenFile& file) {
  if (file.holds_bytes()) return "contains bytes of text";
  const std::optional<TokenNote>& note = file.tokenizer();
  return note ? "contains tokens of the tokenizer " + note->name + " (checksum " + note->digest + ")" : "";
}

bool have_same_tokenizer(const TokenFile& one, const TokenFile& other) {
  if (one.holds_bytes() || other.holds_bytes()) return one.holds_bytes() == other.holds_bytes();
  return one.tokenizer()->digest == other.tokenizer()->digest ||
         one.tokenizer()->content == other.tokenizer()->content;
}

// Throws for files with different tokenizers, because a token must have one meaning. Files with an unknown
// tokenizer are accepted.
void refuse_several_tokenizers(const std::vector<TokenFile>& files, const std::string& where) {
  const TokenFile* first = nullptr;
  for (const TokenFile& file : files) {
    if (maker_of(file).empty()) continue;
    if (first == nullptr) first = &file;
    if (have_same_tokenizer(*first, file)) continue;
    throw Error(ErrorCode::config, where,
                "the files have different tokenizers: " + first->path().string() + " " + maker_of(*first) +
                    ", but " + file.path().string() + " " + maker_of(file),
                "make all files with one tokenizer: heddle data --tokenizer");
  }
}

// Opens a data set of token files from its section.
class TokenFilesOpener {
 public:
  TokenFilesOpener(const Node& section, const DataFacts& facts)
      : section_(section), facts_(facts), words_(recipe::read_token_files(section)) {}

  std::unique_ptr<IDataset> open() {
    auto dataset = std::make_unique<TokenDataset>(samples());
    if (facts_.vocabulary > 0) dataset->expect(facts_.vocabulary);
    dataset->set_uses_seed(words_.shuffle_files == Shuffle::on);
    dataset->add_inputs(std::move(inputs_));
    refuse_foreign_end(*dataset);
    refuse_long(*dataset);
    return dataset;
  }

 private:
  std::vector<std::filesystem::path> files_of(const std::vector<std::string>& patterns,
                                              const std::string& key) {
    MatchingFiles found = matching_files(patterns);
    const std::string where = key_location(section_, key);
    look_for(patterns, where, missing_);
    if (const size_t count = found.repeated.size(); count > 0)
      facts_.warn(where + ": " + found.repeated.front().string() +
                  (count > 1 ? " and " + std::to_string(count - 1) + " more are" : " is") +
                  " named more than once; each file is read once");
    return std::move(found.files);
  }

  TokenDataset samples() {
    const auto paths = files_of(words_.patterns, "file_pattern");
    const auto of_lengths = files_of(words_.lengths, "lengths");
    if (!missing_.empty()) throw MissingData(missing_);
    if (!words_.lengths.empty() && of_lengths.size() != paths.size())
      throw Error(ErrorCode::config, key_location(section_, "lengths"),
                  "there are " + std::to_string(paths.size()) + " token files and " +
                      std::to_string(of_lengths.size()) + " files of lengths",
                  "give one file of lengths per token file; both lists are sorted by name");
    note_inputs(paths, of_lengths);
    const SampleOrder order(static_cast<int64_t>(paths.size()), words_.shuffle_files, facts_.seed, 0);
    std::vector<TokenFile> files;
    std::vector<std::vector<int64_t>> lengths;
    for (int64_t i = 0; i < order.size(); ++i) {
      const auto at = static_cast<size_t>(order[i]);
      files.emplace_back(paths[at], words_.bare);
      check_tokenizer(files.back());
      if (!of_lengths.empty()) lengths.push_back(read_lengths(of_lengths[at], files.back()));
    }
    refuse_several_tokenizers(files, key_location(section_, "file_pattern"));
    const int64_t row = facts_.pack_size > 0 ? facts_.pack_size : words_.sequence_length.value_or(0);
    if (of_lengths.empty()) {
      TokenDataset dataset(std::move(files), row, words_.document_end);
      if (words_.most_samples) dataset.keep_first(*words_.most_samples);
      return dataset;
    }
    if (words_.most_samples) keep_first(lengths, *words_.most_samples);
    return TokenDataset(std::move(files), lengths, row, words_.document_end);
  }

  void note_inputs(const std::vector<std::filesystem::path>& tokens,
                   const std::vector<std::filesystem::path>& lengths) {
    for (const std::filesystem::path& file : tokens) {
      inputs_.push_back({file, "a token file of the run"});
      inputs_.push_back(
          {std::filesystem::path(file).replace_extension(".idx"), "the index of a token file of the run"});
    }
    for (const std::filesystem::path& file : lengths)
      inputs_.push_back({file, "a file of lengths of the run"});
  }

  // Compares tokenizers by bytes, then by JSON contents. Does nothing if either tokenizer is unknown.
  void check_tokenizer(const TokenFile& file) const {
    const std::optional<TokenNote>& note = file.tokenizer();
    if (!note || facts_.model_tokenizer.empty()) return;
    const std::string digest = checkpoint::checksum(facts_.model_tokenizer);
    if (note->digest == digest || note->content == tokenizer_content(facts_.model_tokenizer)) return;
    throw Error(ErrorCode::config, key_location(section_, "file_pattern"),
                file.path().string() + " was made with another tokenizer than the model's: that of " +
                    note->name + " (vocabulary of " + std::to_string(note->vocabulary) + ", end token " +
                    std::to_string(note->end_token) + ", checksum " + note->digest +
                    "), but the model's tokenizer.json has checksum " + digest,
                "make the tokens again with heddle data --tokenizer of this model, or remove " +
                    note_beside(file.path()).string() + " if the tokens are nevertheless the model's");
  }

  // Names the part of the files that has_token() reads, if it does not read them completely.
  static std::string checked_part(const TokenDataset& dataset) {
    const auto files = dataset.files();
    const bool is_whole = std::all_of(files.begin(), files.end(), [](const TokenFile& file) {
      return static_cast<int64_t>(file.bytes()) <= TokenFile::kMostChecked;
    });
    return is_whole ? "" : "the " + bytes_text(TokenFile::kMostChecked) + " that were read of each file of ";
  }

  // Throws if the end token never occurs, so that no document would end.
  void refuse_foreign_end(const TokenDataset& dataset) const {
    const std::optional<int64_t> end = dataset.document_end();
    const bool is_foreign = end && facts_.vocabulary > 0 && *end >= facts_.vocabulary;
    if (!end || (!is_foreign && dataset.has_token(*end))) return;
    const std::string token = "the token " + std::to_string(*end);
    throw Error(ErrorCode::config, key_location(section_, "reset_attention_at"),
                is_foreign
                    ? token + " is not in the model's vocabulary of " + std::to_string(facts_.vocabulary)
                    : token + " occurs nowhere in " + checked_part(dataset) + text::join(words_.patterns) +
                          ", so no document would end",
                "set the id of the token that ends a document, as heddle data prints it, or remove the key");
  }

  // Throws for samples longer than a row. With packing, the packer discards or refuses them.
  void refuse_long(const TokenDataset& dataset) const {
    const int64_t row = dataset.row_length(), longest = dataset.longest();
    if (facts_.pack_size > 0 || longest <= row) return;
    int64_t count = 0;
    for (int64_t sample = 0; sample < dataset.size(); ++sample)
      if (dataset.length(sample) > row) ++count;
    throw Error(ErrorCode::config, key_location(section_, "seq_len"),
                std::to_string(count) + " of " + std::to_string(dataset.size()) +
                    " samples are longer than a row of seq_len " + std::to_string(row) +
                    "; the longest has " + std::to_string(longest) + " inputs",
                "set seq_len to " + std::to_string(longest));
  }

  const Node& section_;
  const DataFacts& facts_;
  const TokenFilesSection words_;
  std::vector<MissingData::One> missing_;
  std::vector<DataInput> inputs_;
};

OfferedDataset offer() {
  OfferedDataset offered;
  offered.name = kTokenFiles;
  offered.length_key = "seq_len";
  offered.fields = recipe::token_file_fields();
  offered.resolve = [](const Node& section) {
    return Resolved{section, recipe::read_token_files(section).not_built};
  };
  offered.make = [](const Node& section, const DataFacts& facts) {
    return TokenFilesOpener(section, facts).open();
  };
  return offered;
}

}  // namespace

const OfferedDataset& token_files() {
  static const OfferedDataset offered = offer();
  return offered;
}

void look_for_token_files(const Node& section) {
  SectionErrors ignored;
  const TokenFilesSection words = recipe::read_token_files(section, ignored);
  std::vector<MissingData::One> missing;
  look_for(words.patterns, key_location(section, "file_pattern"), missing);
  look_for(words.lengths, key_location(section, "lengths"), missing);
  if (!missing.empty()) throw MissingData(missing);
}

}  // namespace heddle
