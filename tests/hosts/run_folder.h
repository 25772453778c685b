// Recipes of tiny models, and comparison of the files that runs wrote.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "flow/program.h"

namespace hosts {

// Temporary directory visible to all hosts, with the recipe run.yaml: three steps of a four-layer Llama in
// float32 under fsdp2. Removed in the destructor.
class RunFolder {
 public:
  RunFolder();
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string recipe() const { return path("run.yaml"); }
  void write(const std::string& name, const std::string& text) const;
  // Overrides that set the output directory to `run` in the folder, followed by `more`.
  flow::Words save_in(const std::string& run, const flow::Words& more = {}) const;
  // Runs the recipe on one rank without a launcher. Adds a test failure if the status is not 0.
  void train_alone(const flow::Words& words) const;
  // Path of the model that the last step of `run` exported.
  std::string exported(const std::string& run) const { return path(run + "/LATEST/model/consolidated"); }

 private:
  std::filesystem::path folder_;
};

// Models of the recipes, as values of `--model`.
extern const char* const kLlama;
extern const char* const kMixture;

// Reads the float32 tensors of a model directory's safetensors files.
std::map<std::string, std::vector<float>> read_tensors(const std::string& directory);
void write_tensors(const std::string& directory, const std::map<std::string, std::vector<float>>& tensors);

// Checks that two runs have equal losses and gradient norms in each step and equal exported weights, within
// `tolerance` relative to the larger of the expected value and 1.
void expect_equal_runs(const std::string& run, const std::string& expected, double tolerance);

}  // namespace hosts
