// Reads the keys of a data set of token files.
#include "lib/data/tokens/token_files_section.h"

#include <algorithm>
#include <array>
#include <map>

#include "heddle/base/text.h"
#include "lib/data/section_keys.h"

namespace heddle {
namespace {

const std::array<std::string_view, 4> kPrefixes = {"", "numpy.", "np.", "torch."};  // of a dtype
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
    const size_t begin = word.rfind('.') + 1;  // "numpy.uint16" is uint16
    const auto found = kTypes.find(word.substr(begin));
    const bool known =
        std::find(kPrefixes.begin(), kPrefixes.end(), word.substr(0, begin)) != kPrefixes.end();
    if (!known || found == kTypes.end())
      throw Error(ErrorCode::config, value.where(),
                  "tokens are integers of 8 to 64 bits, got '" + text::excerpt(word) + "'");
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
          .field("_target_", &DataFields::target, "NanogptDataset.")
          .field("file_pattern", &DataFields::file_pattern, "Token files, as a shell reads it, or a list.")
          .field("seq_len", &DataFields::seq_len,
                 "Tokens of one sample; with lengths, tokens of a row, which holds one sample.",
                 positive("", kLargestSize))
          .field("lengths", &DataFields::lengths,
                 "Files with the lengths of samples, as file_pattern: one for each token file; null: samples "
                 "are cut from one row of tokens.")
          .field("shuffle_files", &DataFields::shuffle_files, "Shuffle the order of the files.")
          .field("align_to_bos", &DataFields::align_to_bos, "Start each sample at a bos_token.")
          .later("align_to_bos", "samples are cut one after the other")
          .field("bos_token", &DataFields::bos_token, "The token that begins a document, for align_to_bos.")
          .field("dtype", &DataFields::dtype, "Token dtype of files without a header.")
          .field("reset_attention_at", &DataFields::reset_attention_at,
                 "The token that ends a document: attention does not cross it, and positions begin again "
                 "after it; null: a sample is one document.",
                 at_least<int64_t>(0))
          .field("limit_dataset_samples", &DataFields::limit_dataset_samples,
                 "Number of samples to use, from the beginning of the files, before shuffling and packing; "
                 "null: all samples.",
                 positive("or null"));
  return schema;
}

// A word or a list of words.
std::vector<std::string> words_of(const Node& value) {
  if (value.is_list() && value.size() == 0)
    throw Error(ErrorCode::config, value.where(), "the list is empty",
                "name a file, or a pattern as a shell reads it");
  return value.is_list() ? FieldType<std::vector<std::string>>::read(value)
                         : std::vector<std::string>{value.as_text()};
}

std::vector<std::string> patterns_of(const Node& section) {
  const Node* pattern = section.find("file_pattern");
  if (pattern == nullptr || pattern->is_null())
    throw Error(ErrorCode::config, section.where(), "file_pattern is missing",
                "file_pattern: data/train*.bin; heddle data makes a token file from a text");
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
}  // namespace heddle
