// Where the figures of a run go besides training.jsonl: the plugin kind `metrics`.
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

// What is known of a run before its first record.
struct MetricsRun {
  std::filesystem::path directory;  // checkpoint_dir; it may not be there yet
  int64_t done_steps = 0;           // of the checkpoint that the run resumes from; 0: it begins anew
  int64_t total_steps = 0;
  std::vector<std::pair<std::string, std::string>> facts;  // "strategy": "fsdp2", "world_size": "2", ...
  std::string configuration;                               // the whole recipe, with the overrides, as YAML
};

struct MetricsField {
  std::string name;            // as in training.jsonl: "loss", "moe/load"
  std::vector<double> values;  // one number, or a list
};

// A line of training.jsonl or of validation.jsonl.
struct MetricsRecord {
  enum class Kind { training, validation } kind = Kind::training;
  std::string set;                   // of a validation: the NAME of validation_dataset_NAME, or empty
  int64_t step = 0, epoch = 0;       // from 0
  double time = 0;                   // seconds since 1970
  std::vector<MetricsField> fields;  // in the order of the line; those without a number are left out
};

// A sink of records on rank 0. All functions are called by one thread, start() first.
class HEDDLE_API IMetrics {
 public:
  virtual ~IMetrics();

  // What it throws ends the run before its first step.
  virtual void start(const MetricsRun& run) = 0;

  // Called after each step and each validation, in their order, between two steps: what takes long delays the
  // run. A process may end without finish(), so a record that is taken should be readable then. What it
  // throws is a warning, once: the sink gets nothing more, and the run goes on.
  virtual void record(const MetricsRecord& record) = 0;

  // After the last record of a run that ends in order, or on a signal.
  virtual void finish() {}
};

// A file or a directory that a sink writes.
struct MetricsOutput {
  std::filesystem::path path;
  std::string key;         // of the section, which names it: "dir"
  std::string kind;        // what it will hold, for messages: "event files"
  bool directory = false;  // made where it is missing
  // Whether the file that is there is of this kind, written by the sink; not asked of a directory.
  std::function<bool(const std::filesystem::path&)> is_own = {};
  // The file holds the latest record alone: each record replaces it, and so does the first record of a run
  // that resumes. It is replaced by a rename, so that a reader never sees a part of it. False: the file
  // grows, and a run that resumes keeps what is there.
  bool snapshot = false;
};

// Its name is the section at the top of a recipe that turns it on. plugin.metrics<Mine>("mine",
// schema()) offers Mine(Config).
struct OfferedMetrics : OfferedSchema {
  static constexpr const char* kKind = "metrics";
  std::function<std::unique_ptr<IMetrics>(const Node& section)> make;
  // What it will write in a run with this checkpoint_dir: a run is refused before its first step where that
  // is another output, or a file of another kind. Empty: nothing on this machine's disk.
  std::function<std::vector<MetricsOutput>(const Node& section, const std::filesystem::path& checkpoint_dir)>
      outputs;
};

}  // namespace heddle
