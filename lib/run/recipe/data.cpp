// Reads `dataset:`, `validation_dataset:` and `dataloader:`.
#include <algorithm>
#include <array>
#include <map>

#include "heddle/base/text.h"
#include "heddle/config/common_fields.h"
#include "lib/run/recipe/component.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

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

const ConfigSchema<DataFields>& dataset_schema() {
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
          .field("bos_token", &DataFields::bos_token, "The token that begins a document.")
          .later("bos_token", "samples are cut one after the other")
          .field("dtype", &DataFields::dtype, "Type of the tokens of files without a header.")
          .field("reset_attention_at", &DataFields::reset_attention_at,
                 "The token that ends a document: attention does not cross it, and positions begin again "
                 "after it; null: a sample is one document.")
          .field("limit_dataset_samples", &DataFields::limit_dataset_samples,
                 "Only the first so many samples of the files, before any are mixed or packed; null: all.");
  return schema;
}

struct LoaderFields {
  std::optional<std::string> target;
  bool shuffle = true;
  int64_t num_workers = 0;
  bool pin_memory = false, persistent_workers = false, drop_last = false;
  std::optional<int64_t> prefetch_factor;
  std::optional<std::string> collate_fn;
};

const ConfigSchema<LoaderFields>& loader_schema() {
  using W = LoaderFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("_target_", &W::target, "ParallelAwareDataloader, StatefulDataLoader.")
          .field("shuffle", &W::shuffle, "Mix the samples anew each epoch; false: the order of the files.")
          .field("num_workers", &W::num_workers, "No processes are needed: token files are mapped.")
          .field("pin_memory", &W::pin_memory, "Decided by the device.")
          .field("persistent_workers", &W::persistent_workers, "No processes are needed.")
          .field("prefetch_factor", &W::prefetch_factor, "No processes are needed.")
          .field("drop_last", &W::drop_last, "Leave out an epoch's last, smaller step.")
          .later("drop_last", "the last samples of an epoch are always trained on")
          .field("collate_fn", &W::collate_fn, "Samples are stacked; default_collater says the same.");
  return schema;
}

const std::array<std::string, 1> kDatasets = {"NanogptDataset"};
const std::array<std::string, 2> kLoaders = {"ParallelAwareDataloader", "StatefulDataLoader"};
const std::array<std::string, 1> kCollaters = {"default_collater"};
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

// Packs have a size of their own, and need samples.
int64_t row_length(const Node& section, std::optional<int64_t> seq_len, bool has_lengths,
                   const PackedSection& packed) {
  const int64_t size = packed.rules.size;
  if (size > 0 && !has_lengths)
    throw Error(
        ErrorCode::config, packed.where,
        "packed_sequence_size is " + std::to_string(size) +
            ", and dataset.lengths is not set: only samples of unequal length are packed",
        "leave packed_sequence out, as samples are cut from one row of tokens; or name the files with "
        "the samples' lengths: dataset.lengths");
  if (!seq_len && size == 0) throw Error(ErrorCode::config, section.where(), "seq_len is missing");
  require_positive(section, "seq_len", seq_len, "", kLargestSize);
  if (size > 0 && seq_len && *seq_len != size)
    throw Error(ErrorCode::config, where_of(section, "seq_len"),
                "seq_len is " + std::to_string(*seq_len) + " and packed_sequence.packed_sequence_size is " +
                    std::to_string(size) + ": a row has one length",
                "leave dataset.seq_len out; packs have packed_sequence_size tokens");
  return size > 0 ? size : *seq_len;
}

}  // namespace

std::vector<FieldInfo> dataset_fields() {
  return dataset_schema().fields();
}

std::vector<FieldInfo> dataloader_fields() {
  return loader_schema().fields();
}

DatasetSection read_dataset(const Node& section, const PackedSection& packed, NotBuilt& not_built) {
  component(section, kDatasets, "NanogptDataset");
  const DataFields words = dataset_schema().read(section);
  DatasetSection dataset;
  dataset.patterns = patterns_of(section);
  dataset.where = where_of(section, "file_pattern");
  if (!words.lengths.is_null()) dataset.lengths = words_of(words.lengths);
  dataset.lengths_where = where_of(section, "lengths");
  dataset.sequence_length = row_length(section, words.seq_len, !dataset.lengths.empty(), packed);
  dataset.packed = packed.rules.size > 0;
  dataset.length_where = where_of(section, "seq_len");
  dataset.shuffle_files = words.shuffle_files ? Shuffle::on : Shuffle::off;
  if (words.dtype) {
    const size_t begin = words.dtype->rfind('.') + 1;  // "numpy.uint16" is uint16
    const std::string word = words.dtype->substr(begin);
    const bool known =
        std::find(kPrefixes.begin(), kPrefixes.end(), words.dtype->substr(0, begin)) != kPrefixes.end();
    if (!known || !kTypes.contains(word))
      throw Error(ErrorCode::config, where_of(section, "dtype"),
                  "tokens are integers of 8 to 64 bits, got '" + text::excerpt(*words.dtype) + "'");
    dataset.bare = kTypes.at(word);
  }
  if (words.reset_attention_at) {
    if (*words.reset_attention_at < 0)
      throw Error(
          ErrorCode::config, where_of(section, "reset_attention_at"),
          "the token that ends a document is at least 0, got " + std::to_string(*words.reset_attention_at),
          "give its id, as heddle data prints it, or leave the key out");
    dataset.document_end = words.reset_attention_at;
  }
  dataset.end_where = where_of(section, "reset_attention_at");
  require_positive(section, "limit_dataset_samples", words.limit_dataset_samples, " or null");
  dataset.most_samples = words.limit_dataset_samples;
  add_not_built(not_built, section.path(), dataset_schema(), words);
  return dataset;
}

Shuffle read_dataloader(const Node& section, NotBuilt& not_built) {
  component(section, kLoaders, "");
  const LoaderFields words = loader_schema().read(section);
  if (words.collate_fn) config::component_of(*section.find("collate_fn"), kCollaters);
  add_not_built(not_built, "dataloader", loader_schema(), words);
  return words.shuffle ? Shuffle::on : Shuffle::off;
}

}  // namespace heddle::recipe
