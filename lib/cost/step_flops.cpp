// The operations of a step, by the formula that the model's family declares.
#include "lib/cost/step_flops.h"

#include "heddle/decoder/benchmark.h"
#include "lib/checkpoint/huggingface/read_config.h"

namespace heddle {

double automodel_flops(const ModelFacts& facts, const std::string& config_json, int64_t samples,
                       int64_t tokens) {
  const BenchmarkSizes sizes(checkpoint::parse_config_json(config_json, "config.json"), samples, tokens);
  return facts.benchmark == nullptr ? decoder::general_benchmark(sizes) : facts.benchmark(sizes);
}

double automodel_mfu(double tflop, int ranks, double seconds, double peak_tflops) {
  if (peak_tflops <= 0 || seconds <= 0) return 0;
  return tflop / (ranks * seconds) / peak_tflops * 100;
}

}  // namespace heddle
