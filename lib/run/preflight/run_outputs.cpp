// Outputs of `heddle train`. A file is replaced only if it is recognized as the same kind of file.
#include "lib/run/preflight/preflight.h"

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "heddle/plugin/metrics.h"
#include "lib/data/outputs.h"
#include "lib/data/tokens/token_check.h"
#include "lib/drawing/chrome_trace.h"
#include "lib/report/benchmark_report.h"
#include "lib/report/metrics_files.h"
#include "lib/run/checkpointing/keep.h"
#include "lib/run/checkpointing/run_lock.h"
#include "lib/run/checkpointing/save.h"
#include "lib/run/facts/run_facts.h"
#include "lib/run/model/checkpoint_name.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDirectoryKey = "checkpoint.checkpoint_dir";
constexpr const char* kAnotherFile = "move it away, or choose another file";

class RunOutputs {
 public:
  RunOutputs(const RunSpec& run, const RunOptions& options) : run_(run), section_(run.recipe.checkpoint) {
    if (!options.metrics.empty()) add(options.metrics, "--metrics", "metrics", begins_with_metrics);
    if (!options.trace.file.empty())
      add(options.trace.file, "--trace", "trace of heddle", schedule::is_chrome_file);
    const bool trains = !run.recipe.benchmark;
    const bool writes_there =
        section_.enabled || (trains && (options.metrics.empty() || !run.validation.empty()));
    if (writes_there) add_directory(section_.directory, kDirectoryKey, "directory of checkpoints");
    if (section_.enabled) add_beside_checkpoints(options.metrics.empty());
    for (const PluginSection& section : run.recipe.sections) add_metrics_of(section);
    if (!section_.enabled && trains && options.metrics.empty())
      add_where_sinks_write(default_metrics(section_));
    if (const auto& benchmark = run.recipe.benchmark; benchmark && !benchmark->json.empty())
      all_.push_back({benchmark->json, benchmark->json_where, "figures of a benchmark", is_benchmark_file,
                      Output::Form::file, kAnotherFile});
  }

  const std::vector<Output>& all() const { return all_; }

 private:
  using IsOwn = bool (*)(const fs::path&);

  void add(fs::path path, const char* where, std::string kind, IsOwn is_own,
           Output::Form form = Output::Form::stream) {
    all_.push_back({std::move(path), where, std::move(kind), is_own, form});
  }

  void add_directory(const fs::path& path, const std::string& where, const char* kind) {
    all_.push_back({path, where, kind, {}, Output::Form::directory});
  }

  // Adds the outputs that a metrics plugin declares.
  void add_metrics_of(const PluginSection& section) {
    if (section.kind != OfferedMetrics::kKind) return;
    const auto& offered = static_cast<const OfferedMetrics&>(*section.offered);
    if (!offered.outputs) return;
    for (const MetricsOutput& output : offered.outputs(section.values, section_.directory)) {
      const Node* given = section.node.is_map() ? section.node.find(output.key) : nullptr;
      const std::string where = given != nullptr ? given->where() : section.node.where();
      const auto form = output.directory ? Output::Form::directory : Output::Form::file;
      const bool names_a_file = !output.directory && !output.key.empty();
      all_.push_back(
          {output.path, where, output.kind, output.is_own, form, names_a_file ? kAnotherFile : ""});
    }
  }

  // In a run without checkpoints, the metrics file gets another name if the file exists. That would not hold
  // for a sink with the same name.
  void add_where_sinks_write(const fs::path& metrics) {
    for (const Output& output : all_)
      if (output.form == Output::Form::file && resolved(output.path) == resolved(metrics))
        return add(metrics, kDirectoryKey, "metrics", begins_with_metrics);
  }

  void add_beside_checkpoints(bool is_default) {
    const fs::path root = section_.directory;
    if (section_.staging_dir)
      add_directory(*section_.staging_dir, section_.staging_where, "directory of unfinished checkpoints");
    if (is_default) add(default_metrics(section_), kDirectoryKey, "metrics", begins_with_metrics);
    for (const fs::path& file : validation_files(metrics_owner(run_)))
      add(file, kDirectoryKey, "metrics", begins_with_metrics);
    add(root / kLossCurve, kDirectoryKey, "loss curve of heddle", is_loss_curve, Output::Form::file);
    add(root / kRunLock, kDirectoryKey, "lock of a run", is_run_lock, Output::Form::file);
    add(root / kTokenNotes, kDirectoryKey, "notes of heddle on tokens", is_token_notes, Output::Form::file);
    for (const std::string name : {"LATEST", "LOWEST_VAL"}) {
      std::error_code missing;  // find_checkpoint() reports a directory with that name
      const bool is_copy = fs::is_directory(fs::symlink_status(root / name, missing));
      for (const std::string& entry : {name, name + ".txt", "." + name + ".new", "." + name + ".txt.new"})
        if (entry != name || !is_copy)
          add(root / entry, kDirectoryKey, "name of a checkpoint", is_checkpoint_pointer,
              Output::Form::entry);
    }
    for (const fs::path& place : {root, stages_of(section_)}) {
      for (const fs::path& left : unfinished_in(place))
        add(left, kDirectoryKey, "unfinished checkpoint", is_unfinished, Output::Form::entry);
      if (!section_.staging_dir) break;
    }
  }

  const RunSpec& run_;
  const CheckpointSection& section_;
  std::vector<Output> all_;
};

void add_data(std::vector<Input>& to, const Rows& dataset) {
  for (const DataInput& input : dataset.samples().inputs()) to.push_back({input.file, input.description});
}

std::vector<Input> inputs_of(const RunSpec& run) {
  std::vector<Input> out{{run.recipe.configuration.mark().file, "the configuration"}};
  add_data(out, run.dataset);
  for (const ValidationSet& set : run.validation) add_data(out, set.dataset);
  const ModelSection& model = run.recipe.model;
  if (model.source == ModelSection::Source::config) {
    if (!model.config.is_map()) out.push_back({model.config.as_text(), "the model's config.json"});
    return out;
  }
  std::error_code failed;
  const ModelPlace& place = run.model.place;
  for (const fs::path& directory : {place.weights, place.notes})
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, failed))
      out.push_back({entry.path(), "a file of the model"});
  return out;
}

// Throws for a file that would be taken for a checkpoint or have the place of one.
void refuse_name_of_checkpoint(const fs::path& file, const std::string& option,
                               const CheckpointSection& section) {
  if (file.empty() || !section.enabled) return;
  const fs::path whole = resolved(file);
  const std::string extension = whole.extension().string();
  const bool unfinished = extension == ".incomplete" || extension == ".removed";
  if (!steps_of(unfinished ? whole.stem() : whole.filename())) return;
  for (const fs::path& place : {fs::path(section.directory), stages_of(section)})
    if (whole.parent_path() == resolved(place))
      throw Error(ErrorCode::usage, option, file.string() + " has the name of a checkpoint of the run",
                  "choose another file");
}

// Throws because heddle generate, convert and the next run would find the model instead of the run's
// checkpoints.
void refuse_directory_of_model(const RunSpec& run) {
  const ModelSection& model = run.recipe.model;
  const std::string& directory = run.recipe.checkpoint.directory;
  if (!run.recipe.checkpoint.enabled || model.source != ModelSection::Source::pretrained) return;
  const ModelPlace& place = run.model.place;
  for (const fs::path& own : {fs::path(model.directory), place.weights, place.notes})
    if (resolved(own) == resolved(directory))
      throw Error(
          ErrorCode::config, kDirectoryKey,
          directory + " is the directory of the model that the run starts from and would contain two models",
          "set checkpoint.checkpoint_dir to another directory");
}

// Throws if checkpoint_dir is a Hugging Face directory, whose model would be found before the checkpoints.
void refuse_directory_of_another_model(const CheckpointSection& section) {
  std::error_code missing;
  if (!section.enabled) return;
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"})
    if (fs::exists(fs::path(section.directory) / name, missing))
      throw Error(
          ErrorCode::config, kDirectoryKey,
          section.directory + " contains a model (" + name +
              "), which heddle generate, convert and train would find instead of the run's checkpoints",
          "set checkpoint.checkpoint_dir to another directory");
}

}  // namespace

void refuse_outputs(const RunSpec& run, const RunOptions& options) {
  if (run.recipe.benchmark && !options.metrics.empty())
    throw Error(ErrorCode::usage, "--metrics", "a benchmark writes no metrics",
                "remove it; benchmark.json_output_path sets the file of the results");
  const RunOutputs outputs(run, options);
  const bool is_named = !options.metrics.empty() || !options.trace.file.empty();
  refuse_outputs(outputs.all(), is_named ? inputs_of(run) : std::vector<Input>());
  refuse_name_of_checkpoint(options.metrics, "--metrics", run.recipe.checkpoint);
  refuse_name_of_checkpoint(options.trace.file, "--trace", run.recipe.checkpoint);
  refuse_directory_of_model(run);
  refuse_directory_of_another_model(run.recipe.checkpoint);
}

}  // namespace heddle
