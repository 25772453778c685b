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
  // `text` under `name`.
  void write(const std::string& name, const std::string& text) const;
  // "train", run.yaml, the checkpoint directory `run`, and more words.
  std::vector<std::string> train(const std::string& run, std::vector<std::string> more = {}) const;

 private:
  std::filesystem::path directory_;
};

// The numbers of one key in a metrics file, line by line.
std::vector<double> column(const std::string& file, const std::string& key);
// The lines without what a clock or the machine decides.
std::string without_clock(const std::string& file);

}  // namespace flow
