// The sections `benchmark:` and `mfu:`.
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

namespace recipe {

// Whether the recipe is AutoModel's benchmark recipe.
bool is_benchmark(const Node& root);

std::vector<FieldInfo> benchmark_fields();
std::vector<FieldInfo> mfu_fields();

// Reads the section of a benchmark recipe. Throws Error{config}.
BenchmarkSection read_benchmark(const Node& section, RecipeNotes& notes);
MfuSection read_mfu(const Node& section);

}  // namespace recipe
}  // namespace heddle
