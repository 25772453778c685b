// IMetrics, a sink for the metrics of a run besides training.jsonl. The plugin kind `metrics`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/plugin/offer.h"

namespace heddle {

// Facts about a run that are known before its first record.
struct MetricsRun {
  std::filesystem::path directory;  // checkpoint_dir; may not exist yet
  int64_t done_steps = 0;           // steps of the checkpoint from which the run resumes; 0 for a new run
  int64_t total_steps = 0;
  std::vector<std::pair<std::string, std::string>> facts;  // "strategy": "fsdp2", "world_size": "2", ...
  std::string configuration;                               // the whole recipe with overrides, as YAML
};

// A field of a record.
struct MetricsField {
  std::string name;            // key in training.jsonl: "loss", "moe/load"
  std::vector<double> values;  // one number or a list
};

// A line of training.jsonl or validation.jsonl.
struct MetricsRecord {
  enum class Kind { training, validation } kind = Kind::training;
  std::string set;                   // NAME of validation_dataset_NAME for a validation; may be empty
  int64_t step = 0, epoch = 0;       // from 0
  double time = 0;                   // seconds since 1970
  std::vector<MetricsField> fields;  // in the order of the line, without fields that are not numbers
};

// A sink of records on rank 0. One thread calls all functions, start() first.
class HEDDLE_API IMetrics {
 public:
  virtual ~IMetrics();

  // Called before the first step. An exception ends the run.
  virtual void start(const MetricsRun& run) = 0;

  // Called after each step and each validation, in order. A slow call delays the run. A process may exit
  // without finish(), so records should be readable as soon as they are taken. The first exception is logged
  // as a warning; then the sink gets no further records, and the run continues.
  virtual void record(const MetricsRecord& record) = 0;

  // Called after the last record of a run that ends normally or by a signal.
  virtual void finish() {}
};

// A file or directory that a sink writes.
struct MetricsOutput {
  std::filesystem::path path;
  std::string key;         // the key of the section that sets the path: "dir"
  std::string kind;        // its content, for messages: "event files"
  bool directory = false;  // created if missing
  // Returns whether an existing file was written by a sink of this kind. Not called for a directory.
  std::function<bool(const std::filesystem::path&)> is_own = {};
  // true: the file holds only the latest record. Each record replaces it by a rename, so that a reader never
  // sees a part of it. false: the file grows, and a resumed run keeps its content.
  bool snapshot = false;
};

// A metrics sink, whose name is the top-level section that enables it. plugin.metrics<Mine>("mine", schema())
// offers a class with the constructor Mine(Config).
struct OfferedMetrics : OfferedSchema {
  static constexpr const char* kKind = "metrics";
  std::function<std::unique_ptr<IMetrics>(const Node& section)> make;
  // Returns what the sink writes in a run with this checkpoint_dir. The run is refused before its first step
  // if a path is also used by another output, or is an existing file of another kind. Empty: no files on this
  // machine.
  std::function<std::vector<MetricsOutput>(const Node& section, const std::filesystem::path& checkpoint_dir)>
      outputs;
};

}  // namespace heddle
