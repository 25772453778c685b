// Checks a run and opens its files before any rank starts.
#include <ATen/Context.h>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/publish.h"
#include "trainer/loop/in_the_way.h"
#include "trainer/loop/job.h"
#include "trainer/loop/resume.h"
#include "trainer/loop/run_lock.h"
#include "trainer/models/freeze.h"
#include "trainer/models/make_units.h"
#include "trainer/models/pretrained.h"

namespace heddle {
namespace {

constexpr const char* kByteTokenizer = "{\"type\": \"bytes\"}\n";

JobModel open_model(const ModelSection& section) {
  JobModel model;
  if (section.source == ModelSection::Source::pretrained) {
    Pretrained pretrained = open_pretrained(section.directory);
    model.config = pretrained.config;
    model.origin = std::move(pretrained.origin);
    model.tensors = std::move(pretrained.names);
    model.source = pretrained.source;
    model.directory = section.directory;
  } else {
    model.config = section.config.is_map()
                       ? read_model_config(section.config)
                       : read_model_config(std::filesystem::path(section.config.as_text()));
  }
  const std::string dtype = !section.dtype.empty() ? section.dtype : model.config.dtype;
  model.dtype = dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  if (!model.source) {
    model.config.dtype = model.dtype == at::kFloat ? "float32" : "bfloat16";
    model.origin.files["config.json"] = to_config_json(model.config);
  }
  return model;
}

TokenDataset open_dataset(const DatasetSection& section, int64_t seed) {
  const auto paths = matching_files(section.patterns);
  if (paths.empty())
    throw Error(ErrorCode::input, section.where,
                "no file matches '" + text::join(section.patterns, "', '") + "'",
                "paths are relative to " + std::filesystem::current_path().string());
  const SampleOrder order(static_cast<int64_t>(paths.size()), section.shuffle_files,
                          static_cast<uint64_t>(seed), 0);
  std::vector<TokenFile> files;
  for (int64_t i = 0; i < order.size(); ++i) files.emplace_back(paths[order[i]], section.bare);
  return TokenDataset(std::move(files), section.sequence_length);
}

void check_length(const DatasetSection& section, const ModelConfig& model) {
  if (section.sequence_length <= model.max_position_embeddings) return;
  throw Error(ErrorCode::config, section.length_where,
              "seq_len " + std::to_string(section.sequence_length) + " is longer than the model's " +
                  std::to_string(model.max_position_embeddings) + " positions",
              "make dataset.seq_len smaller, or the model's max_position_embeddings larger");
}

// Tensors in the files that the model has no place for, the first of them by name.
void warn_of_unused(const JobModel& model, const Units& units, std::vector<std::string>& warnings) {
  std::vector<std::string> names = checkpoint::unused(model.tensors, units);
  if (names.empty()) return;
  const std::string count = std::to_string(names.size());
  const bool more = names.size() > 5;
  if (more) names.resize(5);
  warnings.push_back(model.directory.string() + ": the model has no place for " + count +
                     " of the tensors (" + text::join(names) + (more ? ", ..." : "") +
                     "); they are not loaded and not saved");
}

// A checkpoint is published by renaming it, which a file system does only within itself.
void check_staging(const CheckpointSection& section) {
  if (!section.enabled || !section.staging_dir) return;
  if (checkpoint::on_one_file_system(*section.staging_dir, section.directory)) return;
  throw Error(ErrorCode::config, section.staging_where,
              "staging_dir " + *section.staging_dir + " is on another file system than checkpoint_dir " +
                  section.directory + ", so a checkpoint cannot be renamed from the one to the other",
              "name a directory beside checkpoint_dir, or leave checkpoint.staging_dir out");
}

// What the model and the batch have to say to the plan, on meta: each rank makes its own units later.
std::optional<JobPipeline> look_at_model(const Plan& plan, Setup& setup, const JobModel& model,
                                         const Recipe& recipe) {
  const StepSection& steps = recipe.steps;
  Units units = make_units(model.config, at::TensorOptions(at::kMeta).dtype(model.dtype));
  warn_of_unused(model, units, setup.warnings);
  if (recipe.freeze) freeze(units, *recipe.freeze);
  engine::check_model(plan, setup, units, steps.local_batch_size);
  if (plan.schedule == nullptr) return std::nullopt;
  const PipelineWords& words = plan.pipeline;
  JobPipeline pipeline;
  pipeline.schedule = words.table.empty() ? text::lower(words.schedule) : words.table;
  pipeline.stages = static_cast<int>(parallel::map_stages(units, plan, setup.sizes.pp).rank_of_stage.size());
  pipeline.microbatch_size = words.microbatch_size;
  pipeline.microbatches = static_cast<int>(steps.local_batch_size / words.microbatch_size);
  return pipeline;
}

void warn_of_no_best(Job& job) {
  if (job.recipe.checkpoint.best_set || job.validation.empty()) return;
  job.setup.warnings.push_back(
      "LOWEST_VAL is not kept: none of the validation sets is the default; set checkpoint.best_metric_key");
}

// The last export may have failed, and no step is left that would bring the next.
void warn_of_no_export(Job& job) {
  const bool done = job.resume && job.resume->position.step >= job.scheduler.total_steps();
  if (!done || job.recipe.checkpoint.save_consolidated == CheckpointSection::Export::never) return;
  std::error_code ignored;
  if (std::filesystem::exists(job.resume->directory / "model" / "consolidated", ignored)) return;
  job.setup.warnings.push_back(job.resume->directory.string() +
                               " has no model for transformers: heddle convert " +
                               job.resume->directory.string() + " MODEL makes it");
}

// The checkpoint that the run goes on from, where there is one.
void find_beginning(Job& job) {
  if (job.recipe.checkpoint.enabled) refuse_where_a_run_saves(job.recipe.checkpoint.directory);
  job.latest = checkpoint::pointed(std::filesystem::path(job.recipe.checkpoint.directory) / "LATEST");
  job.resume = find_checkpoint(job, job.setup.warnings);
  warn_of_no_export(job);
  refuse_what_is_in_the_way(job);
  if (job.resume) job.scheduler.go_on_from(job.resume->position.step);
}

}  // namespace

void check_recipe(const Recipe& recipe, Setup& setup) {
  if (recipe.model.source == ModelSection::Source::config && recipe.model.config.is_map()) {
    const ModelConfig model = read_model_config(recipe.model.config);
    if (recipe.dataset) check_length(*recipe.dataset, model);
    for (const DatasetSection& section : recipe.validation) check_length(section, model);
  }
  if (!recipe.dataset)
    setup.warnings.push_back("heddle train refuses this file: the section dataset is missing");
  try {
    check_split(recipe.steps, setup.sizes.dp);
  } catch (const Error& error) {
    setup.warnings.push_back("heddle train refuses this number of ranks: " + error.message());
  }
}

Job prepare_job(const Node& configuration, PluginRegistry& plugins, int world_size,
                const std::string& metrics) {
  Recipe recipe = read_recipe(configuration);
  Setup setup = engine::validate(configuration, plugins, world_size);
  engine::refuse_not_built(configuration, recipe.not_built);
  const Plan plan = engine::choose(setup, plugins);  // refuses what is not built; each rank makes its own
  if (!recipe.dataset)
    throw Error(
        ErrorCode::config, configuration.where(), "the section dataset is missing",
        "dataset: {file_pattern: train.bin, seq_len: 256}; heddle data makes a token file from a text");
  check_staging(recipe.checkpoint);
  JobModel model = open_model(recipe.model);
  check_length(*recipe.dataset, model.config);
  std::optional<JobPipeline> pipeline = look_at_model(plan, setup, model, recipe);
  TokenDataset dataset = open_dataset(*recipe.dataset, recipe.seed);
  if (!model.source && dataset.holds_bytes()) model.origin.files[kTokenizerNote] = kByteTokenizer;
  std::vector<ValidationSet> validation;
  for (const DatasetSection& section : recipe.validation) {
    check_length(section, model.config);
    validation.push_back({section.name, open_dataset(section, recipe.seed)});
  }
  StepScheduler scheduler(recipe.steps, setup.sizes.dp, dataset.size());
  LrSchedule rates(recipe.lr_schedule, recipe.optimizer.adamw, scheduler.total_steps());
  std::filesystem::path file = metrics;
  if (metrics.empty()) file = std::filesystem::path(recipe.checkpoint.directory) / "training.jsonl";
  Job job{configuration,
          std::move(recipe),
          std::move(setup),
          std::move(pipeline),
          std::move(model),
          std::move(dataset),
          std::move(validation),
          std::move(scheduler),
          rates,
          file};
  warn_of_no_best(job);
  find_beginning(job);
  return job;
}

}  // namespace heddle
