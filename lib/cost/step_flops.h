// Operations of one step as NeMo AutoModel's benchmarks count them.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// Floating-point operations of forward and backward over `samples` rows of `tokens` tokens, by the formula
// that AutoModel chooses for the model_type of `config_json`, in Hugging Face's keys. Its figures are
// compared with others of its benchmarks; ModelSpec::flops_per_token counts what the model computes. Families
// without a formula of their own have the general one, as there.
double automodel_flops(const std::string& config_json, int64_t samples, int64_t tokens);

// AutoModel's mfu: `tflop` operations of a step in 1e12, in percent of what `ranks` peaks give in `seconds`.
// 0 where the peak or the time is 0.
double automodel_mfu(double tflop, int ranks, double seconds, double peak_tflops);

}  // namespace heddle
