// mlflow: records a run in MLflow's file store. Nothing is sent.
#include <ctime>

#include "config.h"
#include "file_store.h"
#include "files.h"
#include "heddle/base/log.h"
#include "heddle/base/text_file.h"
#include "heddle/plugin/metrics.h"
#include "heddle/sdk.h"

namespace heddle::mlflow {
namespace {

constexpr const char* kRunId =
    "mlflow_run_id";  // in checkpoint_dir, for resumed runs; the name is AutoModel's

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

// Returns the metric's name: "loss" in training, "val_loss" in validation, "val_NAME/val_loss" for a named
// set. Fields that training has too get a prefix in validation: "val_lr", "val_NAME/lr". Elements of a list
// are "moe/load/0" and so on.
std::string name_of(const MetricsRecord& record, const MetricsField& field, size_t at) {
  const std::string name = field.name + (field.values.size() == 1 ? "" : "/" + std::to_string(at));
  if (record.kind == MetricsRecord::Kind::training) return name;
  if (record.set.empty()) return "val_" + name;
  return "val_" + record.set + "/" + (name == "loss" ? "val_loss" : name);
}

class MLflow : public IMetrics {
 public:
  explicit MLflow(Config config) : config_(std::move(config)) {}

  // Runs also when an exception ends the run.
  ~MLflow() override {
    if (run_ && !ended_) end(RunStatus::failed);
  }

  void start(const MetricsRun& run) override {
    steps_ = run.done_steps;
    total_steps_ = run.total_steps;
    const std::filesystem::path store = store_of(config_, run.directory), note = run.directory / kRunId;
    if (run.done_steps > 0 && config_.resume) run_ = StoredRun::find(store, text_file::first_line(note));
    if (run_) {
      run_->keep_before(run.done_steps);
      run_->set_status(RunStatus::running);
      run_->set_tags(tags());
      run_->add_artifact("config.resumed-" + date_now() + ".yaml", run.configuration);
    } else {
      run_ = StoredRun::create(store, new_run(run));
      run_->add_artifact("config.yaml", run.configuration);
      replace_file(note, run_->id() + "\n");
    }
    warn(store);
  }

  void record(const MetricsRecord& record) override {
    ended_ = true;  // skips the status if the store cannot be written
    for (const MetricsField& field : record.fields)
      for (size_t i = 0; i < field.values.size(); ++i)
        run_->add(name_of(record, field, i), record.time, field.values[i], record.step);
    ended_ = false;
    steps_ = std::max(steps_, record.step + 1);
  }

  // A run that a signal ended has not reached its last step.
  void finish() override {
    ended_ = true;
    run_->set_status(steps_ < total_steps_ ? RunStatus::killed : RunStatus::finished);
  }

 private:
  Texts tags() const {
    Texts out = config_.given_tags();
    if (config_.description) out.emplace_back("mlflow.note.content", *config_.description);
    return out;
  }

  NewRun new_run(const MetricsRun& run) const {
    NewRun out;
    out.experiment = config_.experiment_name;
    out.name = config_.run_name.value_or("");
    if (out.name.empty()) out.name = run.directory.filename().string();
    if (config_.artifact_location) out.artifacts = local_path(*config_.artifact_location);
    out.params = params_of(config::read_text(run.configuration, "configuration"), config_.flatten_depth);
    for (const auto& [name, value] : run.facts) out.tags.emplace_back("heddle." + key_of(name), value);
    for (auto& tag : tags()) out.tags.push_back(std::move(tag));
    return out;
  }

  void warn(const std::filesystem::path& store) const {
    const Log log = Log::to_stderr(0);
    if (config_.tracking_uri && !local_path(*config_.tracking_uri))
      log.warning("mlflow", "nothing is sent to mlflow.tracking_uri (" + scheme_of(*config_.tracking_uri) +
                                "): the run is in the file store " + store.string());
    if (config_.artifact_location && !local_path(*config_.artifact_location))
      log.warning("mlflow", "nothing is sent to mlflow.artifact_location (" +
                                scheme_of(*config_.artifact_location) + "): artifacts are in " +
                                run_->directory().string());
  }

  void end(RunStatus status) noexcept {
    try {
      run_->set_status(status);
    } catch (const std::exception&) {
    }
  }

  Config config_;
  std::optional<StoredRun> run_;
  int64_t steps_ = 0, total_steps_ = 0;
  bool ended_ = false;
};

std::vector<MetricsOutput> outputs_of(const Node& section, const std::filesystem::path& checkpoint_dir) {
  const auto is_own = [](const std::filesystem::path& file) {
    return is_run_id(text_file::first_line(file));
  };
  return {{store_of(schema().read(section), checkpoint_dir), "tracking_uri", "file store of MLflow", true},
          {checkpoint_dir / kRunId, "", "id of an MLflow run", false, is_own}};
}

}  // namespace
}  // namespace heddle::mlflow

HEDDLE_PLUGIN("mlflow", "0.1.0", "metrics mlflow") {
  using namespace heddle::mlflow;
  plugin.metrics<MLflow>("mlflow", schema()).outputs = outputs_of;
}
