// Reads `checkpoint:`: every key of AutoModel's, of which saving, the export and resuming are built.
#include "heddle/base/text.h"
#include "lib/data/section_keys.h"
#include "lib/run/recipe/fields.h"
#include "lib/run/recipe/readers.h"

namespace heddle::recipe {
namespace {

constexpr double kLongestTimeout = 525'600;  // minutes

struct CheckpointFields {
  bool enabled = true;
  std::string checkpoint_dir = "checkpoints/", model_save_format = "safetensors";
  Node save_consolidated = Node::text("final");
  std::optional<bool> is_async;
  bool wait_for_staging = false, cpu_offload = false;
  Node allow_legacy_pickle_restore = Node::boolean(false);
  Node max_recent_checkpoints;
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
  schema.field("enabled", &W::enabled, "false: nothing is saved, and nothing gone on from.")
      .field("checkpoint_dir", &W::checkpoint_dir, "The directory of models, checkpoints and metrics.")
      .field("model_save_format", &W::model_save_format, "safetensors, also for torch_save.")
      .field("save_consolidated", &W::save_consolidated,
             "false, final (the end of the run) or every (checkpoint).")
      .field("is_async", &W::is_async, "Save while training goes on, from a copy in memory.")
      .field("wait_for_staging", &W::wait_for_staging,
             "The step waits for that copy; it always does, so nothing can change beneath it.")
      .field("cpu_offload", &W::cpu_offload,
             "Tensors go to the CPU to be saved; they always do, each rank's own, and nothing is gathered.")
      .field("max_recent_checkpoints", &W::max_recent_checkpoints, "Keep the newest so many; null: all.")
      .field("consolidation_timeout_minutes", &W::consolidation_timeout_minutes,
             "Limit of an export, in minutes.")
      .field("single_rank_consolidation", &W::single_rank_consolidation,
             "Rank 0 writes the whole export, a part of a tensor at a time; else every rank its share.")
      .field(
          "staging_dir", &W::staging_dir,
          "Where checkpoints in the making lie; null: beside their names. On checkpoint_dir's file system.")
      .field("v4_compatible", &W::v4_compatible,
             "config.json has transformers 4's keys too: torch_dtype, rope_theta, rope_scaling.")
      .field("diffusers_compatible", &W::diffusers_compatible, "Names of files as diffusers has them.")
      .later("diffusers_compatible", "files are named as transformers has them")
      .field("best_metric_key", &W::best_metric_key, "The validation set of LOWEST_VAL.");
}

void add_loading(ConfigSchema<CheckpointFields>& schema) {
  using W = CheckpointFields;
  schema
      .field("allow_legacy_pickle_restore", &W::allow_legacy_pickle_restore, "Read old pickled checkpoints.")
      .later("allow_legacy_pickle_restore", "checkpoints hold no pickles")
      .field(
          "restore_from", &W::restore_from,
          "The checkpoint to resume from: null or LATEST (the one saved last), LOWEST_VAL, a name, a path.")
      .field("accept_other_data", &W::accept_other_data,
             "Go on from a checkpoint that was saved with another data set or tokenizer: at the same step, "
             "in the order of the new data.")
      .field(
          "accept_other_base", &W::accept_other_base,
          "Resume although the base model of adapters or the teacher has other weights than in the run that "
          "saved the checkpoint.")
      .field(
          "dequantize_base_checkpoint", &W::dequantize_base_checkpoint,
          "Base weights in fp8 (block scales) or mxfp4 are dequantized when they are read, null too; false "
          "refuses them. Others are read as they are.")
      .field("skip_task_head_prefixes_for_base_model", &W::skip_task_head_prefixes_for_base_model,
             "Keys to leave out.")
      .later("skip_task_head_prefixes_for_base_model", "base models are read whole")
      .field("original_model_root_dir", &W::original_model_root_dir, "The directory of base models.")
      .later("original_model_root_dir",
             "names and dtypes of an export are those of model.pretrained_model_name_or_path")
      .field("model_cache_dir", &W::model_cache_dir, "The directory of downloaded models.")
      .later("model_cache_dir", "models are not downloaded")
      .field("model_repo_id", &W::model_repo_id, "The name of a model to download.")
      .later("model_repo_id", "models are not downloaded")
      .field("is_peft", &W::is_peft, "No effect: the section peft says it.");
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

[[noreturn]] void refuse(const Node& section, const std::string& key, const std::string& what) {
  throw Error(ErrorCode::config, where_of(section, key), what);
}

void check_directory(const Node& section, const std::string& directory, NotBuilt& not_built) {
  if (directory.empty()) refuse(section, "checkpoint_dir", "checkpoint_dir is empty");
  if (directory.find("://") != std::string::npos)
    not_built.push_back("checkpoint.checkpoint_dir: cloud storage is not built yet");
}

CheckpointSection::Export export_of(const Node& section, const Node& value) {
  if (value.kind() == Node::Kind::boolean)
    return value.as_boolean() ? CheckpointSection::Export::every : CheckpointSection::Export::never;
  if (value.kind() == Node::Kind::text && value.as_text() == "final") return CheckpointSection::Export::final;
  if (value.kind() == Node::Kind::text && value.as_text() == "every") return CheckpointSection::Export::every;
  refuse(section, "save_consolidated", "expected false, final or every, got " + value.written());
}

void check_values(const Node& section, const CheckpointFields& words, SectionErrors& found) {
  const auto require = [&](const char* key, bool holds, const std::string& what) {
    found.check({key}, [&] {
      if (!holds) refuse(section, key, what);
    });
  };
  require("model_save_format",
          words.model_save_format == "safetensors" || words.model_save_format == "torch_save",
          "Unsupported model save format: " + words.model_save_format +
              ". Supported formats: ['safetensors', 'torch_save']");
  require("allow_legacy_pickle_restore", words.allow_legacy_pickle_restore.kind() == Node::Kind::boolean,
          "checkpoint.allow_legacy_pickle_restore must be a boolean");
  const Node& recent = words.max_recent_checkpoints;
  require("max_recent_checkpoints",
          recent.is_null() || (recent.kind() == Node::Kind::integer && recent.as_integer() > 0),
          "checkpoint.max_recent_checkpoints must be unset or a positive integer");
  const double minutes = words.consolidation_timeout_minutes;
  require("consolidation_timeout_minutes", minutes > 0,
          "checkpoint.consolidation_timeout_minutes must be greater than 0");
  require("consolidation_timeout_minutes", minutes <= kLongestTimeout,
          "checkpoint.consolidation_timeout_minutes must be at most 525600 (a year)");
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
  const CheckpointFields given = read_fields(checkpoint_schema(), section, found);
  check_values(section, given, found);
  found.check({"checkpoint_dir"}, [&] { check_directory(section, given.checkpoint_dir, notes.not_built); });
  auto exported = CheckpointSection::Export::final;
  found.check({"save_consolidated"}, [&] { exported = export_of(section, given.save_consolidated); });
  const CheckpointFields words = checkpoint_schema().read(right_keys(section, found));
  add_not_built(notes.not_built, "checkpoint", checkpoint_schema(), words);
  note_skipped(words, notes);
  const auto path_or_none = [](const std::optional<std::string>& word) {
    return word ? std::optional(path_of(*word)) : std::nullopt;
  };
  return {words.enabled,
          path_of(words.checkpoint_dir),
          exported,
          path_or_none(words.restore_from),
          words.accept_other_data,
          words.accept_other_base,
          words.consolidation_timeout_minutes,
          words.single_rank_consolidation,
          words.v4_compatible,
          words.max_recent_checkpoints.is_null() ? std::nullopt
                                                 : std::optional(words.max_recent_checkpoints.as_integer()),
          words.best_metric_key,
          std::nullopt,
          words.is_async.value_or(false),
          path_or_none(words.staging_dir),
          where_of(section, "staging_dir")};
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
  throw Error(ErrorCode::config, where_of(section, "best_metric_key"),
              "there is no validation set '" + text::excerpt(key) + "'; there " +
                  (names.empty() ? "are none" : "are: " + text::join(names)),
              nearest.empty() ? "name one of them; default is the section validation_dataset"
                              : "did you mean '" + nearest + "'?");
}

}  // namespace heddle::recipe
