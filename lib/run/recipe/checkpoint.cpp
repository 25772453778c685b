// Reads `checkpoint:`, with all of AutoModel's keys.
#include "heddle/base/text.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle {

// A boolean or a word.
template <>
struct FieldType<CheckpointSection::Export> {
  using Export = CheckpointSection::Export;
  static std::string type_name() { return "false, final or every"; }
  static Export read(const Node& value) {
    if (value.kind() == Node::Kind::boolean) return value.as_boolean() ? Export::every : Export::never;
    if (value.kind() == Node::Kind::text && value.as_text() == "final") return Export::final;
    if (value.kind() == Node::Kind::text && value.as_text() == "every") return Export::every;
    throw Error(ErrorCode::config, value.where(), "expected false, final or every, got " + value.written());
  }
  static Node write(const Export& value) {
    if (value == Export::never) return Node::boolean(false);
    return Node::text(value == Export::final ? "final" : "every");
  }
};

namespace recipe {
namespace {

void check_format(const Node& format) {
  const std::string& word = format.as_text();
  if (word != "safetensors" && word != "torch_save")
    throw Error(
        ErrorCode::config, format.where(),
        "Unsupported model save format: " + word + ". Supported formats: ['safetensors', 'torch_save']");
}

void check_timeout(const Node& minutes) {
  constexpr double kYear = 525'600;
  if (!(minutes.as_real() > 0))
    throw Error(ErrorCode::config, minutes.where(),
                "checkpoint.consolidation_timeout_minutes must be greater than 0");
  if (minutes.as_real() > kYear)
    throw Error(ErrorCode::config, minutes.where(),
                "checkpoint.consolidation_timeout_minutes must be at most 525600 (a year)");
}

struct CheckpointFields {
  bool enabled = true;
  std::string checkpoint_dir = "checkpoints/", model_save_format = "safetensors";
  CheckpointSection::Export save_consolidated = CheckpointSection::Export::final;
  std::optional<bool> is_async;
  bool wait_for_staging = false, cpu_offload = false;
  bool allow_legacy_pickle_restore = false;
  std::optional<int64_t> max_recent_checkpoints;
  double consolidation_timeout_minutes = 30;
  bool single_rank_consolidation = false;
  std::optional<std::string> staging_dir;
  bool v4_compatible = false, diffusers_compatible = false;
  std::string best_metric_key = "default";
  std::optional<bool> dequantize_base_checkpoint, is_peft;
  Node skip_task_head_prefixes_for_base_model;
  std::optional<std::string> original_model_root_dir, model_cache_dir, model_repo_id, restore_from;
  bool accept_other_data = false, accept_other_base = false;
};

void add_saving(ConfigSchema<CheckpointFields>& schema) {
  using W = CheckpointFields;
  schema.field("enabled", &W::enabled, "Save checkpoints and resume from them.")
      .field("checkpoint_dir", &W::checkpoint_dir, "Directory of models, checkpoints and metrics.",
             Check{"",
                   [](const Node& value) {
                     if (value.as_text().empty())
                       throw Error(ErrorCode::config, value.where(), "checkpoint_dir is empty");
                   }})
      .field("model_save_format", &W::model_save_format, "File format. torch_save writes safetensors too.",
             Check{"safetensors or torch_save", check_format})
      .field("save_consolidated", &W::save_consolidated,
             "When to export the model in the Hugging Face format: false (never), final (at the end of the "
             "run) or "
             "every (at each checkpoint).")
      .field("is_async", &W::is_async, "Write a checkpoint in the background, from a copy in memory.")
      .field("wait_for_staging", &W::wait_for_staging,
             "Ignored: a step always waits for the copy of is_async.")
      .field("cpu_offload", &W::cpu_offload, "Ignored: each rank always copies its shards to the CPU.")
      .field("max_recent_checkpoints", &W::max_recent_checkpoints,
             "Number of newest checkpoints to keep. null keeps all.",
             at_least<int64_t>(1, "must be unset or a positive integer"))
      .field("consolidation_timeout_minutes", &W::consolidation_timeout_minutes,
             "Time limit of an export, in minutes.", Check{"above 0, at most 525600", check_timeout})
      .field("single_rank_consolidation", &W::single_rank_consolidation,
             "Let rank 0 write the whole export, a slice of a tensor at a time. false: each rank writes a "
             "share.")
      .field("staging_dir", &W::staging_dir,
             "Directory of unfinished checkpoints, on the file system of checkpoint_dir. Default: "
             "checkpoint_dir.")
      .field("v4_compatible", &W::v4_compatible,
             "Write the keys of transformers 4 to config.json too: torch_dtype, rope_theta, rope_scaling.")
      .field("diffusers_compatible", &W::diffusers_compatible,
             "Name the files of an export as diffusers does.")
      .later("diffusers_compatible", "files have transformers' names")
      .field("best_metric_key", &W::best_metric_key, "Validation set whose loss decides LOWEST_VAL.");
}

void add_loading(ConfigSchema<CheckpointFields>& schema) {
  using W = CheckpointFields;
  schema.field("allow_legacy_pickle_restore", &W::allow_legacy_pickle_restore, "Read pickled checkpoints.")
      .later("allow_legacy_pickle_restore", "checkpoints contain no pickles")
      .field("restore_from", &W::restore_from,
             "Checkpoint to resume from: LATEST (the last one saved), LOWEST_VAL, a name or a path. Default: "
             "LATEST, if there is a checkpoint.")
      .field(
          "accept_other_data", &W::accept_other_data,
          "Resume from a checkpoint that was saved with another data set or tokenizer, at the same step and "
          "in the order of the new data.")
      .field(
          "accept_other_base", &W::accept_other_base,
          "Resume although the base model of adapters or the teacher has other weights than in the run that "
          "saved the checkpoint.")
      .field("dequantize_base_checkpoint", &W::dequantize_base_checkpoint,
             "Dequantize base weights in fp8 (block scales) or mxfp4 when they are read; false refuses such "
             "weights. "
             "Default: true.")
      .field("skip_task_head_prefixes_for_base_model", &W::skip_task_head_prefixes_for_base_model,
             "Prefixes of tensors to skip.")
      .later("skip_task_head_prefixes_for_base_model", "base models are read completely")
      .field("original_model_root_dir", &W::original_model_root_dir, "Directory of base models.")
      .later("original_model_root_dir",
             "names and dtypes of an export are those of model.pretrained_model_name_or_path")
      .field("model_cache_dir", &W::model_cache_dir, "Directory of downloaded models.")
      .later("model_cache_dir", "models are not downloaded")
      .field("model_repo_id", &W::model_repo_id, "Name of a model to download.")
      .later("model_repo_id", "models are not downloaded")
      .field("is_peft", &W::is_peft, "Ignored: the section peft decides.");
}

const ConfigSchema<CheckpointFields>& checkpoint_schema() {
  static const auto schema = [] {
    ConfigSchema<CheckpointFields> made;
    add_saving(made);
    add_loading(made);
    return made;
  }();
  return schema;
}

void note_skipped(const CheckpointFields& words, RecipeNotes& notes) {
  if (words.model_save_format == "torch_save")
    notes.skipped.push_back(
        {"checkpoint.model_save_format", "models and checkpoints are written as safetensors"});
}

}  // namespace

std::vector<FieldInfo> checkpoint_fields() {
  return checkpoint_schema().fields();
}

CheckpointSection read_checkpoint(const Node& section, RecipeNotes& notes, SectionErrors& found) {
  const CheckpointFields words = checkpoint_schema().read(section, found);
  if (words.checkpoint_dir.find("://") != std::string::npos)
    notes.not_built.push_back("checkpoint.checkpoint_dir: cloud storage is not built yet");
  add_not_built(notes.not_built, "checkpoint", checkpoint_schema(), words);
  note_skipped(words, notes);
  const auto path_or_none = [](const std::optional<std::string>& word) {
    return word ? std::optional(expand_home(*word)) : std::nullopt;
  };
  return {words.enabled,
          expand_home(words.checkpoint_dir),
          words.save_consolidated,
          path_or_none(words.restore_from),
          words.accept_other_data,
          words.accept_other_base,
          words.consolidation_timeout_minutes,
          words.single_rank_consolidation,
          words.v4_compatible,
          words.max_recent_checkpoints,
          words.best_metric_key,
          std::nullopt,
          words.is_async.value_or(false),
          path_or_none(words.staging_dir),
          key_location(section, "staging_dir")};
}

std::optional<std::string> best_set(const Node& section, const std::string& key,
                                    const std::vector<DatasetSection>& sets) {
  std::vector<std::string> names;
  for (const DatasetSection& set : sets) {
    const std::string name = set.name.empty() ? "default" : set.name;
    if (name == key) return set.name;
    names.push_back(name);
  }
  if (key == "default") return sets.size() == 1 ? std::optional(sets.front().name) : std::nullopt;
  const std::string nearest = text::nearest(key, names);
  throw Error(ErrorCode::config, key_location(section, "best_metric_key"),
              "no validation set is named '" + text::excerpt(key) + "'; the recipe " +
                  (names.empty() ? "has none" : "has " + text::join(names)),
              nearest.empty() ? "use one of these names; default is the section validation_dataset"
                              : "did you mean '" + nearest + "'?");
}

}  // namespace recipe
}  // namespace heddle
