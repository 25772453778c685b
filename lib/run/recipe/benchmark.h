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

// Of BenchmarkingRecipeForNextTokenPrediction: how its steps are timed.
struct BenchmarkSection {
  int64_t warmup_steps = 0;           // the first ones, which no average has
  std::optional<double> peak_tflops;  // of a rank; empty: by the device's name
  std::string json;                   // the file of the figures; empty: none
  std::string json_where;             // of its key, for messages
};

// What the share of the peak is compared with.
struct MfuSection {
  std::optional<std::string> device;  // its name; empty: the device's own
  std::optional<double> peak_tflops;  // of a rank; empty: by the name
};

namespace recipe {

// Whether the recipe is AutoModel's benchmark.
bool is_benchmark(const Node& root);

std::vector<FieldInfo> benchmark_fields();
std::vector<FieldInfo> mfu_fields();

// Of a benchmark recipe. Throws Error{config}.
BenchmarkSection read_benchmark(const Node& section, RecipeNotes& notes);
MfuSection read_mfu(const Node& section);

}  // namespace recipe
}  // namespace heddle
