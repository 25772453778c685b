// Opens data sets and checks their rows against the model.
#include "lib/run/preflight/open_data.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/batch.h"
#include "lib/data/tokenizer/end_tokens.h"
#include "lib/data/tokens/token_files.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/model/tokenizer_files.h"
#include "lib/run/preflight/checks.h"
#include "lib/run/preflight/open_texts.h"
#include "lib/run/recipe/datasets.h"

namespace heddle {
namespace {

// Throws for samples longer than a pack, with drop_long_samples: false.
void refuse_long(const Rows& rows, const PackedSection& packed) {
  if (packed.drop_long || rows.packing()->left_out == 0) return;
  const std::string numbers =
      "is too long (" + std::to_string(rows.packing()->longest) + " > " + std::to_string(rows.length()) + ")";
  throw Error(ErrorCode::config, packed.where,
              packed.rules.packer == Packer::neat
                  ? "Sample " + numbers + ". Set drop_long_samples=True or increase pack_size."
                  : "Dataset sample " + numbers + ". Please increase `packed_sequence_size`.",
              std::to_string(rows.packing()->left_out) + " of " + std::to_string(rows.used_samples()) +
                  " samples are longer than a pack");
}

void refuse_no_packs(const Rows& rows, const PackedSection& packed) {
  if (rows.size() > 0) return;
  throw Error(ErrorCode::config, packed.where,
              packed.rules.packer == Packer::neat
                  ? "No samples remaining after filtering."
                  : "No packs were produced: every sample was longer than packed_sequence_size=" +
                        std::to_string(rows.length()) +
                        " and was dropped (drop_long_samples=True), or the input dataset was empty.",
              "Increase `packed_sequence_size` or provide samples that fit.");
}

void refuse_longest(const Rows& rows, const DatasetSection& section, const ModelFacts& model) {
  if (rows.longest() <= model.max_positions) return;
  if (rows.packing() == nullptr)
    throw Error(
        ErrorCode::config, section.where,
        "the longest sample has " + std::to_string(rows.longest()) + " tokens, more than the model's " +
            positions_text(model),
        (section.texts ? "Cut the samples: " + section.section.path() + ".truncation: true, and " +
                             section.section.path() + ".seq_length: " + std::to_string(model.max_positions)
                       : std::string("shorten the samples")) +
            or_more_positions(model));
  const Node* lengths = section.section.find("lengths");
  throw Error(ErrorCode::config, lengths != nullptr ? lengths->where() : section.where,
              "the longest sample has " + std::to_string(rows.longest()) + " inputs, more than the model's " +
                  positions_text(model),
              "decrease packed_sequence.packed_sequence_size, which discards longer samples" +
                  or_more_positions(model));
}

// Throws for a data set that violates its own declarations.
void refuse_broken(const Rows& rows, const DatasetSection& section) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::plugin_failed, section.where, "the data set '" + section.target + "' " + what,
                "tell the plugin's author, or fix it");
  };
  if (rows.samples().size() < 1) refuse("has no samples");
  if (rows.packing() != nullptr) return;
  if (rows.longest() < 1) refuse("has no token");
  if (rows.longest() > rows.length())
    refuse("has a sample of " + std::to_string(rows.longest()) + " tokens, and rows of " +
           std::to_string(rows.length()));
}

// Returns the section as a benchmark reads it: the keys vocab_size and batch_size, if present, are set to the
// model's vocabulary and the microbatch size.
DatasetSection for_benchmark(DatasetSection section, PluginRegistry& plugins, const DataFacts& facts) {
  if (section.sequence_length == 0)
    throw Error(ErrorCode::config, section.where, "seq_len is missing",
                "a benchmark counts the FLOPs of rows of equal length");
  const OfferedDataset* offered = find_dataset(plugins, section.target);
  const auto set = [&](const char* key, int64_t value) {
    const bool has = std::any_of(offered->fields.begin(), offered->fields.end(),
                                 [&](const FieldInfo& field) { return field.key == key; });
    if (has && value > 0) section.section = section.section.with(key, Node::integer(value));
  };
  set("vocab_size", facts.vocabulary);
  set("batch_size", facts.local_batch_size);
  return section;
}

// Warns of a tokenizer with more tokens than the model; "": none. Token files check each file against the
// model themselves.
std::string larger_tokenizer_text(const Rows& rows, const DatasetSection& section, const ModelFacts& model) {
  const DataTokenizer made = rows.samples().tokenizer();
  if (section.target == kTokenFiles || made.vocabulary <= model.vocabulary) return "";
  return section.where + ": the tokenizer of the data, " + made.name + ", has a vocabulary of " +
         std::to_string(made.vocabulary) + ", larger than the model's vocabulary of " +
         std::to_string(model.vocabulary) +
         "; a token outside the model's vocabulary is an error before the first step";
}

// Warns of samples that are longer than a pack; "": none.
std::string left_out_text(const Rows& rows) {
  const Packing* packing = rows.packing();
  if (packing == nullptr || packing->left_out == 0) return "";
  return std::to_string(packing->left_out) + " of " + std::to_string(rows.used_samples()) +
         " samples are longer than packed_sequence_size " + std::to_string(rows.length()) +
         " and are discarded; the longest has " + std::to_string(packing->longest) + " inputs";
}

int64_t samples_wanted(const StepSection& steps, bool validation) {
  const int64_t count = steps.max_steps.value_or(0);
  return (validation ? count / steps.val_every_steps.value_or(1000) : count) * steps.global_batch_size;
}

DataFacts facts_for(const DatasetSection& section, const PackedSection& packed, const DataSource& run,
                    Findings& found) {
  const Recipe& recipe = run.recipe;
  DataFacts facts;
  facts.seed = static_cast<uint64_t>(recipe.seed);
  facts.local_batch_size = recipe.steps.local_batch_size;
  facts.pack_size = packed.rules.size;
  facts.validation = !recipe.dataset || section.where != recipe.dataset->where;
  facts.samples_wanted = samples_wanted(recipe.steps, facts.validation);
  facts.warnings = &found.warnings;
  if (run.model == nullptr) return facts;
  facts.vocabulary = run.model->spec->facts().vocabulary;
  facts.model_directory = run.model->directory;
  const auto& files = run.model->origin.files;
  if (const auto own = files.find("tokenizer.json"); own != files.end()) facts.model_tokenizer = own->second;
  return facts;
}

// Throws for missing data; on another machine, warns.
void refuse_missing(const MissingData& missing, Findings& found) {
  Errors errors;
  for (const MissingData::One& one : missing.all())
    if (found.is_for_another_machine())
      found.warn_missing(one.what + ": the data is not checked");
    else
      errors.add(Error(missing.code(), one.where, one.what, missing.hint()));
  errors.raise();
}

// Checks only that the files of a data set with an invalid key exist.
void look_for_files(const DatasetSection& section, Findings& found) {
  try {
    if (section.target == kTokenFiles) look_for_token_files(section.section);
  } catch (const MissingData& missing) {
    refuse_missing(missing, found);
  }
}

// Empty for missing files on another machine, and for a set that is not prepared and must not be.
std::optional<Rows> open_rows(const DatasetSection& section, const PackedSection& packed,
                              const DataSource& run, Findings& found) {
  try {
    const DataFacts facts = facts_for(section, packed, run, found);
    std::shared_ptr<const IDataset> samples =
        section.texts ? TextSets(run.recipe, run.plugins, run.preparation).open(section, facts)
                      : find_dataset(run.plugins, section.target)->make(section.section, facts);
    Rows rows(std::move(samples), packed.rules, run.recipe.pad_multiple, section.most_samples);
    const auto model = run.model ? std::optional(run.model->spec->facts()) : std::nullopt;
    check_rows(rows, section, packed, model);
    if (run.model) check_byte_model(rows.samples().tokenizer(), section, *run.model);
    found.warn(left_out_text(rows));
    if (model) found.warn(larger_tokenizer_text(rows, section, *model));
    return rows;
  } catch (const NotPrepared& error) {
    found.warn(error.where() + " " + error.message());
  } catch (const MissingData& missing) {
    refuse_missing(missing, found);
  }
  return std::nullopt;
}

// Sets of texts use AutoModel's order, and some sets their own.
Shuffle shuffle_of(const Recipe& recipe, const std::optional<Rows>& rows) {
  if (rows && rows->samples().sequential()) return Shuffle::off;
  return recipe.dataset->texts && recipe.shuffle == Shuffle::on ? Shuffle::torch : recipe.shuffle;
}

}  // namespace

TrainingData open_training(const DataSource& run, Findings& found) {
  const Recipe& recipe = run.recipe;
  const DatasetSection& section = *recipe.dataset;
  if (section.texts && run.model && !found.is_for_another_machine())
    check_texts(recipe.checkpoint, *run.model->spec,
                [&] { return TextSets(recipe, run.plugins, run.preparation).of_run(section); });
  if (run.model && recipe.packed.rules.size == 0)
    check_length(section, run.model->spec->facts());  // for packs, per sample
  if (!section.whole) {
    look_for_files(section, found);
    return {std::nullopt, recipe.shuffle, false};
  }
  std::optional<Rows> rows =
      recipe.benchmark ? open_rows(for_benchmark(section, run.plugins, facts_for(section, {}, run, found)),
                                   recipe.packed, run, found)
                       : open_rows(section, recipe.packed, run, found);
  const Shuffle shuffle = shuffle_of(recipe, rows);
  return {std::move(rows), shuffle, true};
}

PreparedModel with_tokens_of(const TrainingData& data, PreparedModel model, const DataSource& run,
                             Findings& found) {
  if (!data.is_whole) return model;
  const DatasetSection& section = *run.recipe.dataset;
  const NoteFiles own = model.origin.files;
  const std::filesystem::path& notes = model.place.notes;
  const DataTokenizer made = data.rows ? data.rows->samples().tokenizer() : DataTokenizer();
  if (made.holds_bytes) add_byte_tokenizer(model.origin, model.directory, found.warnings);
  if (data.rows && section.texts) {
    add_tokenizer(model.origin, notes,
                  TextSets(run.recipe, run.plugins, run.preparation).tokenizer().directory, found.warnings);
    found.warn(untrained_end_text(*data.rows, section,
                                  notes.empty() ? std::vector<int64_t>() : stop_tokens(notes, nullptr)));
  }
  const Node* chat = section.texts ? section.section.find("chat_template") : nullptr;
  if (chat != nullptr && chat->kind() == Node::Kind::text)
    add_chat_template(model.origin, chat->as_text(), chat->where());
  try {
    note_end_tokens(model.origin.files, own, made.end_token);
  } catch (const Error& error) {  // names a file of the model
    throw Error(error.code(), (notes / error.where()).string(), error.message(), error.hint());
  }
  return model;
}

std::optional<ValidationSet> open_validation(const DatasetSection& section, const Rows* training,
                                             const DataSource& run, Findings& found) {
  if (!section.whole) {
    look_for_files(section, found);
    return std::nullopt;
  }
  if (run.model && !section.packed) check_length(section, run.model->spec->facts());
  auto rows = open_rows(section, section.packed ? run.recipe.packed_validation : PackedSection{}, run, found);
  if (!rows) return std::nullopt;
  if (training != nullptr) check_one_tokenizer(training->samples(), rows->samples(), section);
  if (rows->size() < run.recipe.whole_validation_samples) refuse_none_left(section, rows->size());
  return ValidationSet{section.name, std::move(*rows)};
}

void check_rows(const Rows& rows, const DatasetSection& section, const PackedSection& packed,
                const std::optional<ModelFacts>& model) {
  refuse_broken(rows, section);
  if (rows.packing() != nullptr) {
    refuse_long(rows, packed);
    refuse_no_packs(rows, packed);
  }
  if (!model) return;
  refuse_longest(rows, section, *model);
}

std::string positions_text(const ModelFacts& model) {
  return std::to_string(model.max_positions) + " positions" +
         (model.positions_reason.empty() ? "" : " (" + model.positions_reason + ")");
}

std::string or_more_positions(const ModelFacts& model) {
  return model.positions_reason.empty() ? ", or increase the model's max_position_embeddings" : "";
}

std::string untrained_end_text(const Rows& rows, const DatasetSection& section, std::vector<int64_t> stops) {
  constexpr int64_t kMostTokens = int64_t{1} << 20;
  const IDataset& samples = rows.samples();
  if (const int64_t end = samples.tokenizer().end_token; end >= 0) stops.insert(stops.begin(), end);
  if (stops.empty()) return "";
  std::vector<int64_t> tokens, labels;
  std::vector<int32_t> documents;
  int64_t sample = 0;
  bool has_labels = false;
  for (int64_t read = 0; sample < rows.used_samples() && read < kMostTokens; ++sample) {
    const auto length = static_cast<size_t>(samples.length(sample));
    tokens.resize(length);
    labels.resize(length);
    samples.read(sample, {tokens, labels, documents, 0});
    for (const int64_t label : labels) {
      if (std::find(stops.begin(), stops.end(), label) != stops.end()) return "";
      has_labels = has_labels || label != Batch::kIgnore;
    }
    read += static_cast<int64_t>(length);
  }
  if (!has_labels) return "";
  return section.where + ": none of the labels of the " + (sample < rows.used_samples() ? "first " : "") +
         std::to_string(sample) + " samples is the end token " + std::to_string(stops.front()) +
         ", so the model does not learn to end an answer; set add_eos_token: true in dataset.tokenizer, "
         "or use a chat template that ends each answer with the end token";
}

}  // namespace heddle
