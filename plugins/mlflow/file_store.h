// MLflow's file store: directories of experiments and runs, with a file for each parameter, tag and metric
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
  std::optional<std::filesystem::path> artifacts;  // of an experiment that is not there yet
  Texts params, tags;
};

// A run in a store. Throws Error{io}.
class StoredRun {
 public:
  // Makes the run, and the experiment where there is none of that name.
  static StoredRun create(const std::filesystem::path& store, const NewRun& run);
  // Goes on in a run; empty: the store has none of that id.
  static std::optional<StoredRun> find(const std::filesystem::path& store, const std::string& id);

  std::string id() const { return directory_.filename().string(); }
  const std::filesystem::path& directory() const { return directory_; }

  void set_tags(const Texts& tags) const;
  void add(const std::string& metric, double time, double value, int64_t step) const;
  // Takes away the figures of this step and later ones.
  void keep_before(int64_t step) const;
  // The end's time is now, or none while the run goes on.
  void set_status(RunStatus status) const;
  // A file among the artifacts; left out where these are not on this machine's disk.
  void add_artifact(const std::string& name, const std::string& text) const;

 private:
  explicit StoredRun(std::filesystem::path directory) : directory_(std::move(directory)) {}
  std::filesystem::path directory_;
};

// Whether the text is the id of a run: 32 digits and letters a to f.
bool is_run_id(const std::string& text);

}  // namespace heddle::mlflow
