// The sections `benchmark:`, `mfu:` and `plan:`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "lib/run/recipe/skipped_keys.h"

namespace heddle {

// Settings of BenchmarkingRecipeForNextTokenPrediction: how steps are timed.
struct BenchmarkSection {
  int64_t warmup_steps = 0;           // first steps, excluded from averages
  std::optional<double> peak_tflops;  // per rank; empty: from the device's name
  std::string json;                   // file of the results; empty: none
  std::string json_where;             // place of its key, for messages
};

// Peak that MFU is relative to.
struct MfuSection {
  std::optional<std::string> device;  // device name; empty: that of the device
  std::optional<double> peak_tflops;  // per rank; empty: from the device name
};

// The prediction of `heddle plan --write` for the recipe. A run compares its step times with it.
struct PlanSection {
  std::string device;  // the name of its machine file
  int64_t world_size = 0;
  double step_seconds = 0;  // 0: no prediction
  double peak_bytes = 0;    // on the rank with the highest memory
};

namespace recipe {

// Whether the recipe is AutoModel's benchmark recipe.
bool is_benchmark(const Node& root);

std::vector<FieldInfo> benchmark_fields();
std::vector<FieldInfo> mfu_fields();
std::vector<FieldInfo> plan_fields();

// Reads the section of a benchmark recipe. Throws Error{config}.
BenchmarkSection read_benchmark(const Node& section, RecipeNotes& notes);
MfuSection read_mfu(const Node& section);
// Reads the section `plan:` of a whole recipe. Without it, returns the defaults. Throws Error{config}.
PlanSection read_plan(const Node& root);

}  // namespace recipe
}  // namespace heddle
