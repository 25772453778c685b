// Reads `benchmark:` and `mfu:`.
#include "lib/run/recipe/benchmark.h"

#include "heddle/base/error.h"
#include "lib/data/section_keys.h"

namespace heddle::recipe {
namespace {

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
          .field("warmup_steps", &W::warmup_steps, "The first steps, which no average has.")
          .field("peak_tflops", &W::peak_tflops, "TFLOP/s of a rank; null: as mfu or the device's name says.")
          .field("json_output_path", &W::json_output_path, "The file of the figures; null: none.")
          .field("nsys_start", &W::nsys_start, "Another profiler's; --trace shows what ranks do.")
          .field("nsys_end", &W::nsys_end, "As nsys_start.")
          .field("nsys_ranks", &W::nsys_ranks, "As nsys_start.")
          .field("num_nodes", &W::num_nodes, "A note; the launcher says how many ranks there are.");
  return schema;
}

const ConfigSchema<MfuSection>& mfu_schema() {
  static const auto schema =
      ConfigSchema<MfuSection>()
          .field("device", &MfuSection::device,
                 "The name by which the peak is looked up; null: the device's.")
          .field("peak_tflops", &MfuSection::peak_tflops, "TFLOP/s of a rank; null: by the name.");
  return schema;
}

void require_peak(const Node& section, const std::optional<double>& peak) {
  if (peak && !(*peak > 0))
    throw Error(ErrorCode::config, where_of(section, "peak_tflops"),
                "peak_tflops must be a finite value greater than zero");
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

BenchmarkSection read_benchmark(const Node& section, RecipeNotes& notes) {
  SectionErrors found;
  const BenchmarkFields words = read_fields(benchmark_schema(), section, found);
  found.check({"warmup_steps"}, [&] {
    if (words.warmup_steps < 0)
      throw Error(ErrorCode::config, where_of(section, "warmup_steps"),
                  "warmup_steps must be 0 or more, got " + std::to_string(words.warmup_steps));
  });
  found.check({"peak_tflops"}, [&] { require_peak(section, words.peak_tflops); });
  found.errors.raise();
  for (const char* key : {"nsys_start", "nsys_end", "nsys_ranks"})
    if (section.find(key) != nullptr)
      notes.skipped.push_back(
          {std::string("benchmark.") + key, "it steers another profiler; --trace shows what ranks do"});
  if (section.find("num_nodes") != nullptr)
    notes.skipped.push_back({"benchmark.num_nodes", "the launcher says how many ranks there are"});
  const auto& json = words.json_output_path;
  return {words.warmup_steps, words.peak_tflops, json ? path_of(*json) : "",
          where_of(section, "json_output_path")};
}

MfuSection read_mfu(const Node& section) {
  SectionErrors found;
  MfuSection words = read_fields(mfu_schema(), section, found);
  found.check({"peak_tflops"}, [&] { require_peak(section, words.peak_tflops); });
  found.errors.raise();
  return words;
}

}  // namespace heddle::recipe
