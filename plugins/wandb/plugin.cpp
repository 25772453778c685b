// wandb: records a run as JSON lines beside W&B's offline runs. Nothing is sent.
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <random>

#include "config.h"
#include "heddle/base/log.h"
#include "heddle/base/text_file.h"
#include "heddle/plugin/metrics.h"
#include "heddle/sdk.h"
#include "run_directory.h"

namespace heddle::wandb {
namespace {

constexpr const char* kRunId = "wandb_run_id";  // in checkpoint_dir, for resumed runs

std::string random_id() {
  static constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device device;
  std::string out;
  for (int i = 0; i < 8; ++i) out += letters[device() % letters.size()];
  return out;
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d_%H%M%S", &parts);
  return text;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no NaN and Inf
  std::array<char, 40> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Returns AutoModel's name of a field: unchanged in training, "val_loss" in validation, "val_NAME/val_loss"
// for a named set. Fields that training has too get a prefix in validation: "val_lr", "val_NAME/lr".
std::string key_of(const MetricsRecord& record, const std::string& field) {
  if (record.kind == MetricsRecord::Kind::training) return field;
  if (record.set.empty()) return "val_" + field;
  return "val_" + record.set + "/" + (field == "loss" ? "val_loss" : field);
}

std::string line_of(const MetricsRecord& record) {
  std::string out = "{\"_step\":" + std::to_string(record.step) + ",\"_timestamp\":" + number(record.time) +
                    ",\"epoch\":" + std::to_string(record.epoch);
  for (const MetricsField& field : record.fields)
    for (size_t i = 0; i < field.values.size(); ++i) {
      const std::string name = field.name + (field.values.size() == 1 ? "" : "/" + std::to_string(i));
      out += "," + text::quoted(key_of(record, name)) + ":" + number(field.values[i]);
    }
  return out + "}";
}

template <class T>
Node node(const T& value) {
  return FieldType<T>::write(value);
}

class Wandb : public IMetrics {
 public:
  explicit Wandb(Config config) : config_(std::move(config)) {}

  void start(const MetricsRun& run) override {
    if (!config_.writes()) return;
    const std::filesystem::path runs = runs_of(config_, run.directory);
    std::string id = config_.id.value_or("");
    const bool resumes = run.done_steps > 0 && config_.continues();
    if (id.empty() && resumes) id = text_file::first_line(run.directory / kRunId);
    const std::filesystem::path there = resumes && is_id(id) ? find_run(runs, id) : "";
    if (there.empty() && resumes && config_.resume == "must")
      throw Error(ErrorCode::config, "wandb.resume",
                  "resume is must, but " + runs.string() + " has no run " +
                      (is_id(id) ? id : "that this one resumes"),
                  "set wandb.resume: allow, or set wandb.id to an existing run");
    const Node configuration = config::read_text(run.configuration, "configuration");
    if (there.empty())
      begin(run, configuration, runs, is_id(id) ? id : random_id());
    else
      resume(run, configuration, there);
    Log::to_stderr(0).warning("wandb", "nothing is sent to W&B: metrics are JSON lines in " +
                                           (directory_->path() / kHistory).string());
  }

  void record(const MetricsRecord& record) override {
    if (directory_) directory_->append(line_of(record));
  }

 private:
  void begin(const MetricsRun& run, const Node& configuration, const std::filesystem::path& runs,
             const std::string& id) {
    directory_.emplace(runs / ("offline-run-" + date_now() + "-" + id));
    std::vector<Node::Entry> facts;
    for (const auto& [name, value] : run.facts) facts.emplace_back(name, Node::text(value));
    const Node notes = Node::map({{"id", Node::text(id)},
                                  {"project", Node::text(config_.project)},
                                  {"entity", node(config_.entity)},
                                  {"name", Node::text(name_of(config_, configuration, run.directory))},
                                  {"group", node(config_.group)},
                                  {"job_type", node(config_.job_type)},
                                  {"tags", node(config_.tags.value_or(std::vector<std::string>()))},
                                  {"notes", node(config_.notes)},
                                  {"facts", Node::map(std::move(facts))}});
    directory_->write("run.json", config::to_json(notes) + "\n");
    directory_->write("config.json", config::to_json(configuration) + "\n");
    RunDirectory(run.directory).write(kRunId, id + "\n");
  }

  void resume(const MetricsRun& run, const Node& configuration, const std::filesystem::path& there) {
    directory_.emplace(there);
    directory_->keep_before(run.done_steps);
    directory_->write("config.resumed-" + std::to_string(run.done_steps) + ".json",
                      config::to_json(configuration) + "\n");
  }

  Config config_;
  std::optional<RunDirectory> directory_;
};

std::vector<MetricsOutput> outputs_of(const Node& section, const std::filesystem::path& checkpoint_dir) {
  const Config config = schema().read(section);
  if (!config.writes()) return {};
  const auto is_own = [](const std::filesystem::path& file) { return is_id(text_file::first_line(file)); };
  return {
      {runs_of(config, checkpoint_dir), config.save_dir ? "save_dir" : "dir", "directory of W&B runs", true},
      {checkpoint_dir / kRunId, "", "id of a W&B run", false, is_own}};
}

}  // namespace
}  // namespace heddle::wandb

HEDDLE_PLUGIN("wandb", "0.1.0", "metrics wandb") {
  using namespace heddle::wandb;
  plugin.metrics<Wandb>("wandb", schema()).outputs = outputs_of;
}
