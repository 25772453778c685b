// Reads the keys of a data set of token files.
#include "lib/run/recipe/token_files.h"

#include <algorithm>
#include <array>
#include <map>

#include "heddle/base/text.h"
#include "lib/run/recipe/component.h"

namespace heddle::recipe {
namespace {

struct DataFields {
  std::optional<std::string> target;
  Node file_pattern, lengths;
  std::optional<int64_t> seq_len;
  bool shuffle_files = false;
  bool align_to_bos = false;
  std::optional<int64_t> bos_token;
  std::optional<std::string> dtype;
  std::optional<int64_t> reset_attention_at, limit_dataset_samples;
};

const ConfigSchema<DataFields>& schema() {
  static const auto schema =
      ConfigSchema<DataFields>()
          .field("_target_", &DataFields::target, "NanogptDataset.")
          .field("file_pattern", &DataFields::file_pattern, "Token files, as a shell reads it, or a list.")
          .field("seq_len", &DataFields::seq_len,
                 "Tokens of one sample; with lengths those of a row, which holds one sample.")
          .field("lengths", &DataFields::lengths,
                 "Files with the lengths of samples, as file_pattern: one for each token file; null: samples "
                 "are cut from one row of tokens.")
          .field("shuffle_files", &DataFields::shuffle_files, "Mix the order of the files.")
          .field("align_to_bos", &DataFields::align_to_bos, "Begin each sample at bos_token.")
          .later("align_to_bos", "samples are cut one after the other")
          .field("bos_token", &DataFields::bos_token, "The token that begins a document, for align_to_bos.")
          .field("dtype", &DataFields::dtype, "Type of the tokens of files without a header.")
          .field("reset_attention_at", &DataFields::reset_attention_at,
                 "The token that ends a document: attention does not cross it, and positions begin again "
                 "after it; null: a sample is one document.")
          .field("limit_dataset_samples", &DataFields::limit_dataset_samples,
                 "Only the first so many samples of the files, before any are mixed or packed; null: all.");
  return schema;
}

const std::array<std::string_view, 4> kPrefixes = {"", "numpy.", "np.", "torch."};  // of a dtype
const std::map<std::string, TokenType> kTypes = {{"uint8", TokenType::uint8},   {"int8", TokenType::int8},
                                                 {"uint16", TokenType::uint16}, {"int16", TokenType::int16},
                                                 {"uint32", TokenType::uint32}, {"int32", TokenType::int32},
                                                 {"int64", TokenType::int64}};

// A word or a list of words.
std::vector<std::string> words_of(const Node& value) {
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

TokenType type_of(const std::string& word, const Node& section) {
  const size_t begin = word.rfind('.') + 1;  // "numpy.uint16" is uint16
  const auto found = kTypes.find(word.substr(begin));
  const bool known = std::find(kPrefixes.begin(), kPrefixes.end(), word.substr(0, begin)) != kPrefixes.end();
  if (!known || found == kTypes.end())
    throw Error(ErrorCode::config, where_of(section, "dtype"),
                "tokens are integers of 8 to 64 bits, got '" + text::excerpt(word) + "'");
  return found->second;
}

}  // namespace

std::vector<FieldInfo> token_file_fields() {
  return schema().fields();
}

TokenFilesSection read_token_files(const Node& section) {
  const DataFields words = schema().read(section);
  TokenFilesSection out;
  out.patterns = patterns_of(section);
  if (!words.lengths.is_null()) out.lengths = words_of(words.lengths);
  require_positive(section, "seq_len", words.seq_len, "", kLargestSize);
  out.sequence_length = words.seq_len;
  out.shuffle_files = words.shuffle_files ? Shuffle::on : Shuffle::off;
  if (words.dtype) out.bare = type_of(*words.dtype, section);
  if (words.reset_attention_at && *words.reset_attention_at < 0)
    throw Error(
        ErrorCode::config, where_of(section, "reset_attention_at"),
        "the token that ends a document is at least 0, got " + std::to_string(*words.reset_attention_at),
        "give its id, as heddle data prints it, or leave the key out");
  out.document_end = words.reset_attention_at;
  require_positive(section, "limit_dataset_samples", words.limit_dataset_samples, " or null");
  out.most_samples = words.limit_dataset_samples;
  out.not_built = schema().not_built(words);
  return out;
}

}  // namespace heddle::recipe
