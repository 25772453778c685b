// What a recipe's sections allow of the model and of each other.
#include "lib/run/preflight/checks.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/note_size.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_note.h"
#include "lib/run/preflight/open_data.h"

namespace heddle {
namespace {

// "bytes of text", "tokens of the tokenizer llama (checksum 12ab)"; empty: not known.
std::string maker_text(const DataTokenizer& data) {
  if (data.holds_bytes) return "bytes of text";
  if (data.digest.empty()) return "";
  return "tokens of the tokenizer " + data.name + " (checksum " + data.digest + ")";
}

// tokenizer_content() of the tokenizer that made the tokens; empty: not known.
std::string content_of(const IDataset& data) {
  if (const auto* tokens = dynamic_cast<const TokenDataset*>(&data)) return tokens->tokenizer_content();
  const std::filesystem::path file = std::filesystem::path(data.tokenizer().name) / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return "";
  checkpoint::refuse_large_note(file);
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  return checkpoint::checksum(bytes) == data.tokenizer().digest ? tokenizer_content(bytes) : "";
}

bool have_one_tokenizer(const IDataset& one, const IDataset& other) {
  if (one.tokenizer().holds_bytes || other.tokenizer().holds_bytes)
    return one.tokenizer().holds_bytes == other.tokenizer().holds_bytes;
  if (one.tokenizer().digest == other.tokenizer().digest) return true;
  const std::string content = content_of(one);
  return !content.empty() && content == content_of(other);
}

}  // namespace

void check_length(const DatasetSection& section, const ModelFacts& model) {
  if (section.sequence_length <= model.max_positions) return;
  throw Error(ErrorCode::config, section.length_where,
              "seq_len " + std::to_string(section.sequence_length) + " is longer than the model's " +
                  positions_text(model),
              "make " + section.section.path() + ".seq_len smaller" + or_more_positions(model));
}

void refuse_none_left(const DatasetSection& section, int64_t samples) {
  throw Error(ErrorCode::config, section.where,
              "validation_dataloader.drop_last leaves none of its " + std::to_string(samples) +
                  " samples: they do not fill a microbatch",
              "give more samples, a smaller validation_dataloader.batch_size, or drop_last: false");
}

void check_samples(const SamplesSection& section, const Sizes& sizes) {
  if (section.prompts.empty()) return;
  const auto refuse = [&](const char* key, int size, const char* what) {
    if (size > 1)
      throw Error(ErrorCode::not_built, section.where,
                  std::string("validation_samples is not built for ") + what + " (" + key + " " +
                      std::to_string(size) + ")",
                  "leave it out, and ask a checkpoint: heddle generate RUN --prompt TEXT");
  };
  refuse("pp_size", sizes.pp, "the stages of a pipeline");
  refuse("cp_size", sizes.cp, "sequences that are split over ranks");
}

std::filesystem::path samples_tokenizer(const SamplesSection& section, const DataTokenizer& data,
                                        const PreparedModel& model) {
  const auto is_there = [](const std::filesystem::path& directory) {
    std::error_code ignored;
    return !directory.empty() && std::filesystem::exists(directory / "tokenizer.json", ignored);
  };
  const bool holds_bytes = data.holds_bytes || (!model.directory.empty() && has_byte_tokenizer(model.place));
  if (holds_bytes && section.chat)
    throw Error(ErrorCode::config, section.where,
                "the model is trained on bytes, which have no chat template",
                "leave validation_samples.chat out");
  if (holds_bytes) return {};
  if (is_there(data.name)) return data.name;
  if (is_there(model.place.notes)) return model.place.notes;
  throw Error(ErrorCode::config, section.where,
              "neither the model nor the data set names a tokenizer.json, which the prompts need",
              "leave validation_samples out, or train on bytes of text (heddle data TEXT --out FILE)");
}

void check_byte_model(const DataTokenizer& data, const DatasetSection& section, const PreparedModel& model) {
  if (data.holds_bytes || data.digest.empty() || model.directory.empty() || !has_byte_tokenizer(model.place))
    return;
  throw Error(
      ErrorCode::config, section.where,
      "the data set holds " + maker_text(data) + ", and the model at " + model.directory.string() +
          " was trained on bytes of text",
      "Make the data of bytes (heddle data TEXT --out FILE), or start from a model with this tokenizer.");
}

void check_one_tokenizer(const IDataset& training, const IDataset& validation,
                         const DatasetSection& section) {
  const std::string ours = maker_text(validation.tokenizer()), theirs = maker_text(training.tokenizer());
  if (ours.empty() || theirs.empty() || have_one_tokenizer(training, validation)) return;
  throw Error(ErrorCode::config, section.where,
              "the validation set holds " + ours + ", and the training set holds " + theirs,
              "Make both with one tokenizer: heddle data TEXT --tokenizer DIR --out FILE.");
}

bool overlaps(const ScheduleTable& table) {
  return std::any_of(table.begin(), table.end(), [](const auto& row) {
    return std::any_of(row.begin(), row.end(), [](const Action& action) { return action.overlaps_next; });
  });
}

void check_staging(const CheckpointSection& section) {
  if (!section.enabled || !section.staging_dir) return;
  if (checkpoint::on_one_file_system(*section.staging_dir, section.directory)) return;
  throw Error(ErrorCode::config, section.staging_where,
              "staging_dir " + *section.staging_dir + " is on another file system than checkpoint_dir " +
                  section.directory + ", so a checkpoint cannot be renamed from the one to the other",
              "name a directory beside checkpoint_dir, or leave checkpoint.staging_dir out");
}

}  // namespace heddle
