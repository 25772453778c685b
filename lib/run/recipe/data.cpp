// Reads `dataset:`, `validation_dataset:` and `dataloader:`.
#include <array>

#include "heddle/config/common_fields.h"
#include "lib/data/section_keys.h"
#include "lib/data/tokens/token_files.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

struct LoaderFields {
  std::optional<std::string> target;
  bool shuffle = true;
  std::optional<int64_t> batch_size;
  int64_t num_workers = 0;
  bool pin_memory = false, persistent_workers = false, drop_last = false;
  std::optional<int64_t> prefetch_factor;
  std::optional<std::string> dataloader_type;
  Node collate_fn;
};

const ConfigSchema<LoaderFields>& loader_schema() {
  using W = LoaderFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("_target_", &W::target, "Class of the loader; all give the same batches.",
                 ends_in({"ParallelAwareDataloader", "StatefulDataLoader", "DataLoader"}))
          .field("shuffle", &W::shuffle,
                 "Shuffle the samples in each epoch. false keeps the order of the files.")
          .field("batch_size", &W::batch_size,
                 "Samples of a microbatch: the value of step_scheduler.local_batch_size, or null.",
                 positive("or null"))
          .field("num_workers", &W::num_workers, "Ignored: samples are read without worker processes.")
          .field("pin_memory", &W::pin_memory, "Ignored: the device decides.")
          .field("persistent_workers", &W::persistent_workers, "Ignored, as num_workers.")
          .field("prefetch_factor", &W::prefetch_factor, "Ignored, as num_workers.")
          .field("drop_last", &W::drop_last,
                 "Discard the last samples of an epoch if they do not fill a microbatch.")
          .field("dataloader_type", &W::dataloader_type,
                 "Order of a MegatronPretraining data set: single, its own order.",
                 OneOf{{"single", "cyclic"}})
          .field("collate_fn", &W::collate_fn,
                 "Collate function: default_collater, default_collate, default_convert, "
                 "packed_sequence_thd_collater or "
                 "neat_packed_collater, which are equivalent, or a map of _target_ and "
                 "pad_seq_len_divisible, the multiple to which microbatches of unequal length are padded.");
  return schema;
}

struct Collater {
  std::optional<std::string> target;
  std::optional<int64_t> pad_seq_len_divisible;
};

const ConfigSchema<Collater>& collater_schema() {
  static const auto schema =
      ConfigSchema<Collater>()
          .field("_target_", &Collater::target, "Collate function: default_collater.")
          .field("pad_seq_len_divisible", &Collater::pad_seq_len_divisible,
                 "Multiple of tokens to which rows are padded.", positive("or null", kLargestSize));
  return schema;
}

const std::array<std::string, 5> kCollaters = {"default_collater", "default_collate", "default_convert",
                                               "packed_sequence_thd_collater", "neat_packed_collater"};

// Returns pad_seq_len_divisible of a collate function, given by name or as a map.
int64_t multiple_of(const Node& collater) {
  const Node* name = collater.is_map() ? collater.find("_target_") : &collater;
  if (name == nullptr)
    throw Error(ErrorCode::config, collater.where(), "_target_ is missing", "_target_: default_collater");
  config::component_of(*name, kCollaters);
  if (!collater.is_map()) return 1;
  return collater_schema().read(collater).pad_seq_len_divisible.value_or(1);
}

// Packs have their own length, and packing needs samples.
int64_t row_length(const Node& section, std::optional<int64_t> seq_len, bool has_lengths,
                   const PackedSection& packed) {
  const int64_t size = packed.rules.size;
  if (size > 0 && !has_lengths)
    throw Error(
        ErrorCode::config, packed.where,
        "packed_sequence_size is " + std::to_string(size) + ", but " + section.path() +
            ".lengths is not set; only samples of unequal length can be packed",
        "remove packed_sequence, because samples are cut from one sequence of tokens, or name the files with "
        "the samples' lengths: " +
            section.path() + ".lengths");
  if (!seq_len && size == 0) throw Error(ErrorCode::config, section.where(), "seq_len is missing");
  if (size > 0 && seq_len && *seq_len != size)
    throw Error(ErrorCode::config, key_location(section, "seq_len"),
                "seq_len is " + std::to_string(*seq_len) + ", but packed_sequence.packed_sequence_size is " +
                    std::to_string(size) + "; rows have one length",
                "remove " + section.path() + ".seq_len; packs have packed_sequence_size tokens");
  return size > 0 ? size : *seq_len;
}

// Returns the last component of _target_.
std::string target_of(const Node& section) {
  const Node* target = section.find("_target_");
  if (target == nullptr || target->is_null()) return kTokenFiles;
  const std::string& dotted = target->as_text();
  return dotted.substr(dotted.find_last_of(".:") + 1);
}

}  // namespace

std::vector<FieldInfo> dataset_fields() {
  return token_file_fields();
}

std::vector<FieldInfo> dataloader_fields() {
  return loader_schema().fields();
}

DatasetSection read_dataset(const Node& section, const PackedSection* packed, NotBuilt& not_built,
                            SectionErrors& found) {
  DatasetSection dataset;
  dataset.section = section;
  dataset.target = section.is_map() ? target_of(section) : kTokenFiles;
  dataset.packed = packed != nullptr && packed->rules.size > 0;
  dataset.where = section.where();
  dataset.whole = packed != nullptr;
  if (dataset.target != kTokenFiles) return dataset;
  const TokenFilesSection files = read_token_files(section, found);
  dataset.where = key_location(section, "file_pattern");
  found.check({"seq_len", "lengths"}, [&] {
    if (packed != nullptr)
      dataset.sequence_length = row_length(section, files.sequence_length, !files.lengths.empty(), *packed);
  });
  dataset.section = right_keys(section, found);
  dataset.whole = dataset.whole && found.unread.empty();
  dataset.length_where = key_location(section, "seq_len");
  for (const std::string& one : files.not_built) not_built.push_back(section.path() + "." + one);
  return dataset;
}

Loader read_dataloader(const Node& section, std::optional<int64_t> local_batch_size) {
  SectionErrors found;
  int64_t multiple = 1;
  const LoaderFields words = loader_schema().read(section, found);
  found.check({"collate_fn"}, [&] {
    if (!words.collate_fn.is_null()) multiple = multiple_of(words.collate_fn);
  });
  found.check({"batch_size"}, [&] {
    if (words.batch_size && local_batch_size && *words.batch_size != *local_batch_size)
      throw Error(ErrorCode::config, key_location(section, "batch_size"),
                  "batch_size is " + std::to_string(*words.batch_size) +
                      ", but step_scheduler.local_batch_size is " + std::to_string(*local_batch_size) +
                      "; a microbatch has one size",
                  "remove dataloader.batch_size, or set both to the same value");
  });
  found.errors.raise();
  return {words.shuffle ? Shuffle::on : Shuffle::off, multiple, words.drop_last, words.batch_size,
          words.dataloader_type};
}

}  // namespace heddle::recipe
