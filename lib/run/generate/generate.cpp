// Generation loop: forward pass, sampling, append.
#include "lib/run/generate/generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
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
  if (prompt.empty()) refuse("the prompt is empty; it needs at least one token");
  if (count < 0) refuse("expected a number of new tokens of at least 0, got " + std::to_string(count));
  if (!(sampling.temperature >= 0) || std::isinf(sampling.temperature))
    refuse("expected a temperature of at least 0, got " + std::to_string(sampling.temperature));
  if (sampling.top_k < 0) refuse("expected a top_k of at least 0, got " + std::to_string(sampling.top_k));
  if (!(sampling.top_p >= 0 && sampling.top_p <= 1))
    refuse("expected a top_p from 0 to 1, got " + std::to_string(sampling.top_p));
}

// The window of the growing sequence that the model sees.
class Window {
 public:
  Window(int64_t longest, KvCache* cache) : longest_(longest), cache_(cache) {}

  // Returns the tokens that the model has not seen yet, up to the last one.
  Batch next(const std::vector<int64_t>& tokens) {
    const auto size = static_cast<int64_t>(tokens.size());
    if (longest_ > 0 && size - begin_ > longest_) {
      begin_ = size - (begun_ ? std::max<int64_t>(longest_ / 3, 1) : longest_);
      if (cache_ != nullptr) cache_->clear();
    }
    begun_ = true;
    const int64_t seen = cache_ != nullptr ? cache_->length() : 0;
    Batch batch;
    batch.tokens = rows(tokens.data() + begin_ + seen, size - begin_ - seen);
    if (seen > 0) batch.positions = rows(&seen, 1);
    return batch;
  }

 private:
  static at::Tensor rows(const int64_t* from, int64_t count) {
    return at::tensor(at::ArrayRef<int64_t>(from, static_cast<size_t>(count)), at::kLong).unsqueeze(0);
  }

  int64_t longest_, begin_ = 0;
  KvCache* cache_;
  bool begun_ = false;
};

// Returns the index at which the cumulative probability exceeds `uniform`, a number in [0, 1).
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

// Returns how many of the largest probabilities are needed to sum to top_p.
int64_t nucleus(const at::Tensor& probabilities, double top_p) {
  const double* p = probabilities.const_data_ptr<double>();
  const int64_t all = probabilities.numel();
  double sum = 0;
  for (int64_t i = 0; i < all; ++i)
    if ((sum += p[i]) >= top_p) return i + 1;
  return all;
}

int64_t pick(const at::Tensor& logits, const Sampling& sampling, std::mt19937_64& random) {
  if (sampling.temperature == 0) return logits.argmax().item<int64_t>();
  // 53 random bits; the distributions of the standard library differ between implementations.
  const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-53;
  if (sampling.top_k == 0 && sampling.top_p >= 1)  // no sorting needed
    return draw(at::softmax(logits / sampling.temperature, 0), uniform);
  const int64_t kept = sampling.top_k > 0 ? std::min(sampling.top_k, logits.numel()) : logits.numel();
  const auto [values, tokens] = at::topk(logits, kept);
  at::Tensor probabilities = at::softmax(values / sampling.temperature, 0);
  if (sampling.top_p < 1) {
    const int64_t likeliest = nucleus(probabilities, sampling.top_p);
    probabilities = at::softmax(values.narrow(0, 0, likeliest) / sampling.temperature, 0);
  }
  return tokens[draw(probabilities, uniform)].item<int64_t>();
}

bool stops(int64_t token, const Sampling& sampling) {
  return std::find(sampling.stop.begin(), sampling.stop.end(), token) != sampling.stop.end();
}

}  // namespace

std::vector<int64_t> generate(const Logits& model, std::vector<int64_t> tokens, int64_t count,
                              const Sampling& sampling, uint64_t seed, KvCache* cache,
                              const std::function<void(int64_t token)>& each) {
  check(tokens, count, sampling);
  at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::mt19937_64 random(seed);
  Window window(sampling.longest, cache);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor logits = model(window.next(tokens));
    const at::Tensor last = logits[0][logits.size(1) - 1];
    tokens.push_back(pick(last.to(at::kCPU, at::kDouble).contiguous(), sampling, random));
    if (each) each(tokens.back());
    if (stops(tokens.back(), sampling)) break;
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
