// Continuing a sequence of tokens: forward, pick, append.
#include "trainer/models/generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {
namespace {

void check(const std::vector<int64_t>& prompt, int64_t count, const Sampling& sampling) {
  const auto refuse = [](const std::string& message) { throw Error(ErrorCode::usage, "generate", message); };
  if (prompt.empty()) refuse("the prompt is empty; give at least one token");
  if (count < 0) refuse("expected a number of new tokens of at least 0, got " + std::to_string(count));
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    refuse("expected a temperature of at least 0, got " + std::to_string(sampling.temperature));
  if (sampling.top_k < 0) refuse("expected a top_k of at least 0, got " + std::to_string(sampling.top_k));
}

Batch last_tokens(const std::vector<int64_t>& tokens, int64_t longest) {
  const size_t length = longest > 0 ? std::min(tokens.size(), static_cast<size_t>(longest)) : tokens.size();
  Batch batch;
  batch.tokens = at::tensor(at::ArrayRef<int64_t>(tokens.data() + tokens.size() - length, length), at::kLong)
                     .unsqueeze(0);
  return batch;
}

// Where a uniform number in [0, 1) falls among the probabilities.
int64_t draw(const at::Tensor& probabilities, double uniform) {
  const double* p = probabilities.const_data_ptr<double>();
  const int64_t last = probabilities.numel() - 1;
  double sum = 0;
  for (int64_t i = 0; i < last; ++i) {
    sum += p[i];
    if (uniform < sum) return i;
  }
  return last;
}

int64_t pick(const at::Tensor& logits, const Sampling& sampling, std::mt19937_64& random) {
  if (sampling.temperature == 0) return logits.argmax().item<int64_t>();
  const int64_t kept = sampling.top_k > 0 ? std::min(sampling.top_k, logits.numel()) : logits.numel();
  const auto [values, tokens] = at::topk(logits, kept);
  const at::Tensor probabilities = at::softmax(values / sampling.temperature, 0);
  // 53 random bits: the distributions of the standard library differ from one library to another.
  const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-53;
  return tokens[draw(probabilities, uniform)].item<int64_t>();
}

}  // namespace

std::vector<int64_t> generate(const Logits& model, std::vector<int64_t> tokens, int64_t count,
                              const Sampling& sampling, uint64_t seed) {
  check(tokens, count, sampling);
  at::NoGradGuard no_grad;
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor logits = model(last_tokens(tokens, sampling.longest));
    tokens.push_back(
        pick(logits[0][logits.size(1) - 1].to(at::kCPU, at::kDouble).contiguous(), sampling, random));
  }
  return tokens;
}

Logits logits_of(Units& units) {
  return [&units](const Batch& batch) {
    Tensors flow;
    for (const auto& unit : units) flow = unit->forward(std::move(flow), batch);
    return flow.at(0);
  };
}

}  // namespace heddle
