// tensorboard: the records of a run as scalars in event files.
#include <optional>

#include "event_file.h"
#include "heddle/plugin/metrics.h"
#include "heddle/sdk.h"

namespace heddle::tensorboard {
namespace {

struct Config {
  std::optional<std::string> dir;
};

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>().field("dir", &Config::dir,
                                      "Directory of the event files. null: tensorboard in checkpoint_dir.");
}

std::filesystem::path directory_of(const Config& config, const std::filesystem::path& checkpoint_dir) {
  return config.dir ? std::filesystem::path(*config.dir) : checkpoint_dir / "tensorboard";
}

// "training/loss", "validation/loss", "validation_NAME/loss"; of a list "training/moe/load/0" and so on.
Scalars scalars_of(const MetricsRecord& record) {
  std::string prefix = record.kind == MetricsRecord::Kind::training ? "training/" : "validation/";
  if (!record.set.empty()) prefix = "validation_" + record.set + "/";
  Scalars out;
  for (const MetricsField& field : record.fields)
    for (size_t i = 0; i < field.values.size(); ++i)
      out.emplace_back(prefix + field.name + (field.values.size() == 1 ? "" : "/" + std::to_string(i)),
                       field.values[i]);
  return out;
}

class TensorBoard : public IMetrics {
 public:
  explicit TensorBoard(Config config) : config_(std::move(config)) {}

  void start(const MetricsRun& run) override {
    file_.emplace(directory_of(config_, run.directory));
    if (run.done_steps > 0) file_->restart(static_cast<double>(std::time(nullptr)), run.done_steps);
  }

  void record(const MetricsRecord& record) override {
    file_->add(record.time, record.step, scalars_of(record));
  }

 private:
  Config config_;
  std::optional<EventFile> file_;
};

}  // namespace
}  // namespace heddle::tensorboard

HEDDLE_PLUGIN("tensorboard", "0.1.0", "metrics tensorboard") {
  using namespace heddle::tensorboard;
  auto& offered = plugin.metrics<TensorBoard>("tensorboard", schema());
  offered.outputs = [](const heddle::Node& section, const std::filesystem::path& checkpoint_dir) {
    return std::vector<heddle::MetricsOutput>{
        {directory_of(schema().read(section), checkpoint_dir), "dir", "directory of event files", true}};
  };
}
