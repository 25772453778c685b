// MLflow's file store: directories of experiments and runs, with one file per parameter, tag and metric
// (mlflow/store/tracking/file_store.py).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "params.h"

namespace heddle::mlflow {

enum class RunStatus { running = 1, finished = 3, failed = 4, killed = 5 };

struct NewRun {
  std::string experiment, name;
  std::optional<std::filesystem::path> artifacts;  // for an experiment that does not exist yet
  Texts params, tags;
};

// A run in a store. Throws Error{io}.
class StoredRun {
 public:
  // Creates the run, and its experiment if the store has none of that name.
  static StoredRun create(const std::filesystem::path& store, const NewRun& run);
  // Opens an existing run. Empty if the store has no run with that id.
  static std::optional<StoredRun> find(const std::filesystem::path& store, const std::string& id);

  std::string id() const { return directory_.filename().string(); }
  const std::filesystem::path& directory() const { return directory_; }

  void set_tags(const Texts& tags) const;
  void add(const std::string& metric, double time, double value, int64_t step) const;
  // Removes metrics of this step and later steps.
  void keep_before(int64_t step) const;
  // Sets the status. The end time is set to now, or removed while the run is running.
  void set_status(RunStatus status) const;
  // Writes a file to the artifacts. Skipped if they are not on a local disk.
  void add_artifact(const std::string& name, const std::string& text) const;

 private:
  explicit StoredRun(std::filesystem::path directory) : directory_(std::move(directory)) {}
  std::filesystem::path directory_;
};

// Returns whether the text is a run id: 32 hexadecimal digits in lower case.
bool is_run_id(const std::string& text);

}  // namespace heddle::mlflow
