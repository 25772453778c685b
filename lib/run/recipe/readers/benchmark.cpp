// Reads `benchmark:`, `mfu:` and `plan:`.
#include "lib/run/recipe/benchmark.h"

#include "heddle/base/error.h"
#include "lib/data/section_keys.h"

namespace heddle::recipe {
namespace {

const Check kPeak = {"above 0", [](const Node& value) {
                       if (!value.is_null() && !(value.as_real() > 0))
                         throw Error(
                             ErrorCode::config, value.where(),
                             "peak_tflops must be a finite value greater than zero, got " + value.written());
                     }};

struct BenchmarkFields {
  int64_t warmup_steps = 0;
  std::optional<double> peak_tflops;
  std::optional<std::string> json_output_path;
  Node nsys_start, nsys_end, nsys_ranks, num_nodes;
};

const ConfigSchema<BenchmarkFields>& benchmark_schema() {
  using W = BenchmarkFields;
  static const auto schema =
      ConfigSchema<W>()
          .field("warmup_steps", &W::warmup_steps, "Number of first steps to exclude from averages.",
                 at_least<int64_t>(0, "must be 0 or more"))
          .field("peak_tflops", &W::peak_tflops,
                 "Peak TFLOP/s per rank. Default: that of the section mfu, else that of the device.", kPeak)
          .field("json_output_path", &W::json_output_path, "JSON file to write the results to. null: none.")
          .field("nsys_start", &W::nsys_start, "Ignored: it controls another profiler. Use --trace.")
          .field("nsys_end", &W::nsys_end, "Ignored, as nsys_start.")
          .field("nsys_ranks", &W::nsys_ranks, "Ignored, as nsys_start.")
          .field("num_nodes", &W::num_nodes, "Ignored: the launcher sets the number of ranks.");
  return schema;
}

const ConfigSchema<MfuSection>& mfu_schema() {
  static const auto schema = ConfigSchema<MfuSection>()
                                 .field("device", &MfuSection::device,
                                        "Device name to look up the peak of. Default: the device of the run.")
                                 .field("peak_tflops", &MfuSection::peak_tflops,
                                        "Peak TFLOP/s per rank. Default: that of the device name.", kPeak);
  return schema;
}

const ConfigSchema<PlanSection>& plan_schema() {
  static const auto schema =
      ConfigSchema<PlanSection>()
          .field("device", &PlanSection::device, "Machine of the prediction.")
          .field("world_size", &PlanSection::world_size, "Number of ranks of the prediction. 0: any.",
                 at_least<int64_t>(0))
          .field("step_seconds", &PlanSection::step_seconds,
                 "Predicted seconds per step. A run prints it with the measured time after 20 steps. 0: no "
                 "prediction.",
                 at_least(0.0))
          .field("peak_bytes", &PlanSection::peak_bytes,
                 "Predicted peak memory in bytes of the rank with the most.", at_least(0.0));
  return schema;
}

}  // namespace

bool is_benchmark(const Node& root) {
  const Node* name = root.find("recipe");
  if (name != nullptr && name->is_map()) name = name->find("_target_");
  return name != nullptr && name->kind() == Node::Kind::text &&
         name->as_text().find("Benchmarking") != std::string::npos;
}

std::vector<FieldInfo> benchmark_fields() {
  return benchmark_schema().fields();
}

std::vector<FieldInfo> mfu_fields() {
  return mfu_schema().fields();
}

std::vector<FieldInfo> plan_fields() {
  return plan_schema().fields();
}

PlanSection read_plan(const Node& root) {
  const Node* const section = root.find("plan");
  return section == nullptr || section->is_null() ? PlanSection() : plan_schema().read(*section);
}

BenchmarkSection read_benchmark(const Node& section, RecipeNotes& notes) {
  const BenchmarkFields words = benchmark_schema().read(section);
  for (const char* key : {"nsys_start", "nsys_end", "nsys_ranks"})
    if (section.find(key) != nullptr)
      notes.skipped.push_back({std::string("benchmark.") + key, "it controls another profiler; use --trace"});
  if (section.find("num_nodes") != nullptr)
    notes.skipped.push_back({"benchmark.num_nodes", "the launcher sets the number of ranks"});
  const auto& json = words.json_output_path;
  return {words.warmup_steps, words.peak_tflops, json ? expand_home(*json) : "",
          key_location(section, "json_output_path")};
}

MfuSection read_mfu(const Node& section) {
  return mfu_schema().read(section);
}

}  // namespace heddle::recipe
