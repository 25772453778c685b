// Runs that distil llama_tied into the golden model llama, on the samples of tests/golden/distill.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plugins/whole_runs.h"

namespace heddle::tests {

inline const std::filesystem::path kGolden = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/golden";

// Reads the lines of a metrics file.
std::vector<nlohmann::json> lines_of(const std::filesystem::path& file);

class DistillRuns {
 public:
  DistillRuns();
  std::filesystem::path operator/(const std::string& name) const { return place_ / name; }

  const nlohmann::json& golden() const { return golden_; }
  // Returns the keys of distillation for a case of the golden file.
  std::string keys(const std::string& name, const std::string& of_loss = "") const;
  // Trains with four samples per step, one or two per microbatch, and validates after the last step.
  void train(const Topology& topology, const std::string& run, int steps = 5,
             std::vector<std::string>* refusals = nullptr) const;

  int local_batch_size = 1;
  std::string student =
      "{pretrained_model_name_or_path: " + (kGolden / "llama").string() + ", dtype: float32}";
  std::string recipe = "KnowledgeDistillationRecipeForNextTokenPrediction";
  std::string checkpoint = "enabled: false";

 private:
  std::string dataset(const std::string& name) const;
  void write_samples(const std::string& name, size_t first, size_t end) const;

  ScratchDirectory place_;
  nlohmann::json golden_;
};

}  // namespace heddle::tests
