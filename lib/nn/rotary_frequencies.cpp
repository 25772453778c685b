// The frequencies of the rotary embedding, in fp32 and in the order of transformers' arithmetic.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "heddle/nn/rotary.h"

namespace heddle::model {
namespace {

using RotaryKind = RotaryScaling::Kind;

at::Tensor llama3_frequencies(const at::Tensor& plain, const RotaryScaling& scaling) {
  const double positions = static_cast<double>(scaling.original_positions);
  const double longest = positions / scaling.low_freq_factor, shortest = positions / scaling.high_freq_factor;
  const at::Tensor wavelength = plain.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor slow = plain / scaling.factor;
  const at::Tensor smooth = (wavelength.reciprocal() * positions - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor between = (1 - smooth) * slow + smooth * plain;
  const at::Tensor ends = at::where(wavelength > longest, slow, plain);
  return at::where((wavelength <= longest).logical_and(wavelength >= shortest), between, ends);
}

// The index of the frequency, as a real number, that turns so often within the original positions.
double index_of_turns(double turns, double dim, double theta, const RotaryScaling& scaling) {
  const double positions = static_cast<double>(scaling.original_positions);
  return dim * std::log(positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

at::Tensor yarn_frequencies(const at::Tensor& wavelengths, int64_t dim, double theta,
                            const RotaryScaling& scaling) {
  double low = index_of_turns(scaling.beta_fast, static_cast<double>(dim), theta, scaling);
  double high = index_of_turns(scaling.beta_slow, static_cast<double>(dim), theta, scaling);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp = at::clamp((at::arange(dim / 2, at::kFloat) - low) / (high - low), 0, 1);
  const at::Tensor keeps = 1 - ramp;
  return (wavelengths * scaling.factor).reciprocal() * (1 - keeps) + wavelengths.reciprocal() * keeps;
}

double mscale_of(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

at::Tensor rotary_frequencies(int64_t dim, double theta, const RotaryScaling& scaling) {
  at::NoGradGuard no_grad;
  const at::Tensor exponents = at::arange(0, dim, 2, at::kFloat) / static_cast<double>(dim);
  const at::Tensor wavelengths = at::pow(theta, exponents);  // over 2 pi
  switch (scaling.kind) {
    case RotaryKind::linear:
      return wavelengths.reciprocal() / scaling.factor;
    case RotaryKind::llama3:
      return llama3_frequencies(wavelengths.reciprocal(), scaling);
    case RotaryKind::yarn:
      return yarn_frequencies(wavelengths, dim, theta, scaling);
    default:
      return wavelengths.reciprocal();
  }
}

double rotary_factor(const RotaryScaling& scaling) {
  if (scaling.kind != RotaryKind::yarn) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0)
    return mscale_of(scaling.factor, scaling.mscale) / mscale_of(scaling.factor, scaling.mscale_all_dim);
  return mscale_of(scaling.factor, 1);
}

}  // namespace heddle::model
