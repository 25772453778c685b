// A metrics sink that appends one letter per record to a file. HEDDLE_FAULT selects a fault; each fault
// violates one sentence of heddle/plugin/metrics.h.
#include <fstream>
#include <stdexcept>

#include "fault.h"
#include "heddle/plugin/metrics.h"
#include "heddle/sdk.h"

namespace {

using faults::is;

struct Config {
  int64_t unused = 0;
};

class Faulty : public heddle::IMetrics {
 public:
  explicit Faulty(Config) {}
  void start(const heddle::MetricsRun& run) override {
    std::filesystem::create_directories(run.directory);
    directory_ = run.directory;
    if (is_snapshot()) return;
    out_.open(run.directory / "faulty.txt", is("overwrites") ? std::ios::trunc : std::ios::app);
  }
  void record(const heddle::MetricsRecord& record) override {
    if (is("throws")) throw std::runtime_error("no table");
    if (is("takes_every_second") && record.step % 2 == 1) return;
    if (is("takes_validations") && record.kind == heddle::MetricsRecord::Kind::training) return;
    if (is_snapshot()) return replace(record.step);
    out_ << "x";
    if (!is("keeps_back")) out_.flush();
  }

 private:
  static bool is_snapshot() {
    return is("snapshot") || is("snapshot_in_place") || is("snapshot_not_declared") || is("snapshot_grows");
  }
  // Overwrites the snapshot file with the number of the latest step.
  void replace(int64_t step) {
    const std::filesystem::path file = directory_ / "faulty.txt", next = directory_ / "faulty.txt.next";
    text_ = (is("snapshot_grows") ? text_ + text_ + "x" : "x") + std::to_string(step);
    std::ofstream(is("snapshot_in_place") ? file : next) << text_;
    if (!is("snapshot_in_place")) std::filesystem::rename(next, file);
  }

  std::ofstream out_;
  std::filesystem::path directory_;
  std::string text_;
};

}  // namespace

HEDDLE_PLUGIN("faulty_metrics", "0.1.0", "metrics faulty") {
  auto& offered = plugin.metrics<Faulty>(
      "faulty", heddle::ConfigSchema<Config>().field("unused", &Config::unused, "Does nothing."));
  if (is("names_no_file")) return;
  offered.outputs = [](const heddle::Node&, const std::filesystem::path& checkpoint_dir) {
    const auto is_own = [](const std::filesystem::path& file) {
      return std::ifstream(file).get() == (is("knows_no_file") ? 'y' : 'x');
    };
    const char* name = is("names_another_file") ? "faulty.text" : "faulty.txt";
    return std::vector<heddle::MetricsOutput>{
        {checkpoint_dir / name, "", "letters", false, is_own,
         is("snapshot") || is("snapshot_in_place") || is("snapshot_grows")}};
  };
}
