// Processor time of `heddle check` by input size: keys, list items, tables.
#include <ctime>

#include "tests/main/with_all.h"
#include "trainer/checked.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Sizes/Growth*");

constexpr int kMany = 100'000, kFew = kMany / 8;

// Returns `count` lines: `before`, the number of the line, `after`.
std::string numbered_lines(int count, const std::string& before, const std::string& after) {
  std::string out;
  for (int i = 0; i < count; ++i) out += before + std::to_string(i) + after + "\n";
  return out;
}

struct GrowthCase {
  const char* name;
  std::string head, before, after;  // head: sections before the lines; before and after: parts of a line
  int divisor = 1;                  // of the number of lines
};

const std::string kGrowthModel =
    "model: {config: {model_type: llama, vocab_size: 256, hidden_size: 32, intermediate_size: 64, "
    "num_hidden_layers: 1, num_attention_heads: 4, max_position_embeddings: 128}}\n";
const std::string kGrowthData = "dataset: {_target_: MockIterableDataset, seq_len: 32, num_samples: 100}\n";
const std::string kGrowthSteps =
    "step_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 2}\n"
    "checkpoint: {enabled: false}\n";
const std::string kGrowthRun = kGrowthModel + kGrowthData + kGrowthSteps;

GrowthCase keys_of_section(const char* section) {
  return {section, kGrowthRun + section + ":\n", "  unknown_", ": 1"};
}
GrowthCase items_of(const char* name, const std::string& head) {
  return {name, kGrowthRun + head, "    - item", ""};
}

const std::vector<GrowthCase> kGrowthCases = {
    {"sections", kGrowthRun, "unknown_", ": 1"},
    keys_of_section("optimizer"),
    keys_of_section("lr_scheduler"),
    keys_of_section("distributed"),
    keys_of_section("peft"),
    keys_of_section("qat"),
    {"step_scheduler", kGrowthModel + kGrowthData + "step_scheduler:\n", "  unknown_", ": 1"},
    {"dataset", kGrowthModel + kGrowthSteps + "dataset:\n  _target_: MockIterableDataset\n  seq_len: 32\n",
     "  unknown_", ": 1"},
    {"model", kGrowthData + kGrowthSteps + "model:\n", "  unknown_", ": 1"},
    {"model_config", kGrowthData + kGrowthSteps + "model:\n  config:\n    model_type: llama\n",
     "    unknown_", ": 1"},
    {"moe", kGrowthRun + "distributed:\n  moe:\n", "    unknown_", ": 1"},
    {"tp_plan", kGrowthRun + "distributed:\n  tp_size: 2\n  tp_plan:\n", "    item", ": colwise"},
    items_of("plugins", "plugins:\n"),
    items_of("freeze_patterns", "freeze_config:\n  patterns:\n"),
    items_of("adapter_modules", "peft:\n  dim: 2\n  target_modules:\n"),
    {"token_files", kGrowthModel + kGrowthSteps + "dataset:\n  seq_len: 32\n  file_pattern:\n", "    - item",
     ""},
    {"parameter_groups", kGrowthRun + "optimizer:\n  param_group_overrides:\n", "    - {pattern: item",
     ", lr_mult: 2}", 2},
    {"module_names",
     kGrowthRun + "distributed:\n  pp_size: 2\n  pipeline:\n    pp_microbatch_size: 1\n"
                  "    module_fqns_per_model_part:\n    - [a]\n    -\n",
     "      - item", ""},
    {"validation_sets", kGrowthRun, "validation_dataset_",
     ": {_target_: MockIterableDataset, seq_len: 32, num_samples: 100}", 8},
};

class Growth : public Checked, public ::testing::WithParamInterface<GrowthCase> {
 protected:
  double seconds_of_check(int count) {
    const GrowthCase& one = GetParam();
    cli::CheckCommand command;
    command.configs = {
        file("run.yaml", one.head + numbered_lines(count / one.divisor, one.before, one.after))};
    command.world_sizes = {2};
    const std::clock_t begin = std::clock();
    run(command);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }
};

// Eight times the lines take about nine times as long for n log n, and 64 times for n squared.
TEST_P(Growth, IsNearlyLinearInTheLinesOfARecipe) {
  (void)seconds_of_check(1);  // opens the plugins
  const double few = seconds_of_check(kFew), many = seconds_of_check(kMany);
  EXPECT_LT(many, 24 * few + 1) << few << " s for " << kFew << ", " << many << " s for " << kMany;
}

INSTANTIATE_TEST_SUITE_P(Sizes, Growth, ::testing::ValuesIn(kGrowthCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
