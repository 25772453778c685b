// A directory with a text, its token file and a configuration of a tiny model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "program.h"

namespace flow {

class TrainingFiles {
 public:
  TrainingFiles();
  ~TrainingFiles();
  TrainingFiles(const TrainingFiles&) = delete;
  TrainingFiles& operator=(const TrainingFiles&) = delete;

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  // Writes `text` to the file `name`.
  void write(const std::string& name, const std::string& text) const;
  // Returns "train", run.yaml, the checkpoint directory `run`, and further arguments.
  std::vector<std::string> train(const std::string& run, std::vector<std::string> more = {}) const;

 private:
  std::filesystem::path directory_;
};

// Returns the values of one key in a metrics file, line by line.
std::vector<double> column(const std::string& file, const std::string& key);
// Returns the lines without values that depend on a clock or the machine.
std::string without_clock(const std::string& file);

}  // namespace flow
