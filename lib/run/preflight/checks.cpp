// Checks of a recipe's sections against the model and against each other.
#include "lib/run/preflight/checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

#include "core/base/pattern.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/huggingface/note_size.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_note.h"
#include "lib/run/preflight/open_data.h"

namespace heddle {
namespace {

// Returns "bytes of text" or "tokens of the tokenizer llama (checksum 12ab)"; empty: unknown.
std::string maker_text(const DataTokenizer& data) {
  if (data.holds_bytes) return "bytes of text";
  if (data.digest.empty()) return "";
  return "tokens of the tokenizer " + data.name + " (checksum " + data.digest + ")";
}

// Returns tokenizer_content() of the tokenizer that made the tokens; empty: unknown.
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

struct Found {
  bool named = false, trained = false;
};

[[noreturn]] void refuse_group(const std::string& pattern, const std::string& where, const Found& found,
                               const std::string& example) {
  if (!found.named)
    throw Error(ErrorCode::config, where,
                "no parameter name contains a match of '" + text::excerpt(pattern) + "'",
                "parameter names look like '" + example + "'");
  const std::string all = "all parameters that '" + text::excerpt(pattern) + "' matches ";
  if (!found.trained)
    throw Error(ErrorCode::config, where, all + "are frozen", "freeze fewer parameters, or remove the entry");
  throw Error(ErrorCode::config, where, all + "belong to the entries before it",
              "the first entry that matches a parameter applies, so put the narrower pattern first");
}

std::string rate_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

}  // namespace

void check_length(const DatasetSection& section, const ModelFacts& model) {
  if (section.sequence_length <= model.max_positions) return;
  throw Error(
      ErrorCode::config, section.length_where,
      section.length_key + " " + std::to_string(section.sequence_length) + " is longer than the model's " +
          positions_text(model),
      "make " + section.section.path() + "." + section.length_key + " smaller" + or_more_positions(model));
}

void refuse_none_left(const DatasetSection& section, int64_t samples) {
  throw Error(ErrorCode::config, section.where,
              "validation_dataloader.drop_last leaves none of its " + std::to_string(samples) +
                  " samples, because they do not fill a microbatch",
              "use more samples, a smaller validation_dataloader.batch_size, or drop_last: false");
}

void check_samples(const SamplesSection& section, const Sizes& sizes) {
  if (section.prompts.empty()) return;
  const auto refuse = [&](const char* key, int size, const char* what) {
    if (size > 1)
      throw Error(
          ErrorCode::not_built, section.where,
          std::string("validation_samples is not built for ") + what + " (" + key + " " +
              std::to_string(size) + ")",
          "remove the section, and generate from a checkpoint with heddle generate RUN --prompt TEXT");
  };
  refuse("pp_size", sizes.pp, "the stages of a pipeline");
  refuse("cp_size", sizes.cp, "context parallelism");
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
                "remove validation_samples.chat");
  if (holds_bytes) return {};
  if (is_there(data.name)) return data.name;
  if (is_there(model.place.notes)) return model.place.notes;
  throw Error(ErrorCode::config, section.where,
              "the prompts need a tokenizer.json, but neither the model nor the data set has one",
              "remove validation_samples, or train on bytes of text (heddle data TEXT --out FILE)");
}

void check_byte_model(const DataTokenizer& data, const DatasetSection& section, const PreparedModel& model) {
  if (data.holds_bytes || data.digest.empty() || model.directory.empty() || !has_byte_tokenizer(model.place))
    return;
  throw Error(ErrorCode::config, section.where,
              "the data set contains " + maker_text(data) + ", and the model at " + model.directory.string() +
                  " was trained on bytes of text",
              "Make a token file of bytes with heddle data TEXT --out FILE, or start from a model with this "
              "tokenizer.");
}

void check_one_tokenizer(const IDataset& training, const IDataset& validation,
                         const DatasetSection& section) {
  const std::string ours = maker_text(validation.tokenizer()), theirs = maker_text(training.tokenizer());
  if (ours.empty() || theirs.empty() || have_one_tokenizer(training, validation)) return;
  throw Error(ErrorCode::config, section.where,
              "the validation set contains " + ours + ", but the training set contains " + theirs,
              "Tokenize both with the same tokenizer: heddle data TEXT --tokenizer DIR --out FILE.");
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
              "choose a directory next to checkpoint_dir, or remove checkpoint.staging_dir");
}

void check_groups(Units& units, const OptimizerSection& optimizer) {
  std::set<std::string> taken;
  for (size_t i = 0; i < optimizer.groups.size(); ++i) {
    const std::string &pattern = optimizer.groups[i].pattern, &where = optimizer.groups_where[i];
    const text::Pattern expression(pattern, where);
    Found found;
    bool acts = false;
    std::set<std::string> own;
    for (const auto& unit : units)
      for (const ParameterSlot& slot : unit->parameters()) {
        if (!expression.found_in(slot.name)) continue;
        found.named = true;
        found.trained = found.trained || slot.trainable();
        acts = acts || (slot.trainable() && !taken.contains(slot.name));
        own.insert(slot.name);
      }
    if (!acts) refuse_group(pattern, where, found, units.front()->parameters().front().name);
    taken.merge(own);
  }
}

void check_batch(const StepSection& steps, int64_t rows, int64_t packed) {
  if (steps.global_batch_size <= rows) return;
  const auto count = [](int64_t number, const std::string& one) {
    return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
  };
  throw Error(
      ErrorCode::config, steps.where,
      "global_batch_size (" + std::to_string(steps.global_batch_size) +
          ") is larger than the data set: it has " +
          (packed > 0 ? count(rows, "pack") + " of " + count(packed, "sample") : count(rows, "sample")),
      "set step_scheduler.global_batch_size to at most " + std::to_string(rows) +
          (packed > 0 ? ", decrease packed_sequence.packed_sequence_size" : "") + ", or use more data");
}

std::string no_validation_text(const Recipe& recipe) {
  const auto& every = recipe.steps.val_every_steps;
  if (!every || !recipe.validation.empty() || !recipe.samples.prompts.empty()) return "";
  return recipe.steps.val_where + " (" + std::to_string(*every) +
         ") has no effect: there is no validation_dataset";
}

// Warns if best_metric_key selects no validation set; "": a set is selected, or there is none to select.
std::string no_best_text(const RunSpec& run) {
  if (run.recipe.checkpoint.best_set || run.validation.empty()) return "";
  return "LOWEST_VAL is not updated because no validation set is the default; set checkpoint.best_metric_key";
}

// The last export may have failed, and no step is left to export again.
std::string no_export_text(const RunSpec& run) {
  const bool done = run.resume && run.resume->position.step >= run.scheduler.total_steps();
  if (!done || run.exports == CheckpointSection::Export::never) return "";
  const std::string checkpoint = run.resume->directory.string();
  std::error_code ignored;
  if (std::filesystem::exists(run.resume->directory / "model" / "consolidated", ignored)) return "";
  return checkpoint + " has no exported model; run heddle convert " + checkpoint + " MODEL to export it";
}

// A longer run stretches its schedule, and a changed optimizer.lr shifts it, so the learning rate may jump.
std::string another_rate_text(const RunSpec& run) {
  if (!run.resume || !run.resume->position.next_lr) return "";
  const Position& position = run.resume->position;
  const int64_t total = run.scheduler.total_steps();
  const double was = *position.next_lr, now = run.rates.lr(position.step);
  if (position.step >= total || std::abs(now - was) <= 1e-9 * std::max(std::abs(now), std::abs(was)))
    return "";
  const bool longer = run.recipe.lr_schedule && position.total_steps && *position.total_steps != total;
  return "the learning rate of step " + std::to_string(position.step + 1) + " changed from " +
         rate_text(was) + " (run that saved " + run.resume->directory.filename().string() + ") to " +
         rate_text(now) + " (this run)" +
         (longer ? ": that run had " + std::to_string(*position.total_steps) + " steps, this one has " +
                       std::to_string(total)
                 : "");
}

void require_data(const Node& configuration) {
  const Node* section = configuration.find("dataset");
  if (section != nullptr && !section->is_null()) return;
  throw Error(
      ErrorCode::config, configuration.where(), "the section dataset is missing",
      "dataset: {file_pattern: train.bin, seq_len: 256}; make a token file from texts with heddle data");
}

}  // namespace heddle
