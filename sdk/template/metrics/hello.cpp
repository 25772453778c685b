// Metrics: writes the losses of a run to a CSV file.
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "heddle/plugin/metrics.h"
#include "heddle/sdk.h"

namespace hello_plugin {

struct Config {
  std::optional<std::string> file;
};

heddle::ConfigSchema<Config> schema() {
  return heddle::ConfigSchema<Config>().field("file", &Config::file,
                                              "CSV file. null: hello.csv in checkpoint_dir.");
}

constexpr const char* kHeader = "kind,set,step,epoch,loss";

std::filesystem::path file_of(const Config& config, const std::filesystem::path& checkpoint_dir) {
  return config.file ? std::filesystem::path(*config.file) : checkpoint_dir / "hello.csv";
}

// Returns the file that the sink writes. A run is refused before its first step if another file has this
// name.
std::vector<heddle::MetricsOutput> outputs_of(const heddle::Node& section,
                                              const std::filesystem::path& checkpoint_dir) {
  const auto is_own = [](const std::filesystem::path& file) {
    std::ifstream in(file);
    std::string line;
    return std::getline(in, line) && line == kHeader;
  };
  return {{file_of(schema().read(section), checkpoint_dir), "file", "table of hello", false, is_own}};
}

class Hello : public heddle::IMetrics {
 public:
  explicit Hello(Config config) : config_(std::move(config)) {}

  // Appends to the file of a resumed run.
  void start(const heddle::MetricsRun& run) override {
    const std::filesystem::path file = file_of(config_, run.directory);
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    out_.open(file, std::ios::app);
    if (out_.tellp() == 0) out_ << kHeader << std::endl;
    check(file);
  }

  // Flushes each line, so that it is in the file if the process is killed.
  void record(const heddle::MetricsRecord& record) override {
    const bool trains = record.kind == heddle::MetricsRecord::Kind::training;
    out_ << (trains ? "training," : "validation,") << record.set << "," << record.step << "," << record.epoch
         << ",";
    for (const heddle::MetricsField& field : record.fields)
      if (field.name == "loss") out_ << field.values.front();
    out_ << std::endl;
    check("hello.csv");
  }

 private:
  void check(const std::filesystem::path& file) const {
    if (!out_)
      throw heddle::Error(heddle::ErrorCode::io, file.string(), file.string() + " cannot be written",
                          "set hello.file to another path");
  }

  Config config_;
  std::ofstream out_;
};

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "metrics hello") {
  plugin.metrics<hello_plugin::Hello>("hello", hello_plugin::schema()).outputs = hello_plugin::outputs_of;
}
