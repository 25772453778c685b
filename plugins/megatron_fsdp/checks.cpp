// Detection of NaN, Inf and unusually large gradients.
#include "checks.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <cmath>
#include <utility>

#include "gradients.h"

namespace heddle::megatron_fsdp {
namespace {

constexpr int64_t kSamples = 100;
constexpr double kTimesTheLargest = 10;

// Returns "NaN" or "Inf" if the gradient is not finite, else "".
std::string gradient_error(const at::Tensor& gradient) {
  if (!gradient.defined() || gradient.is_meta() || at::isfinite(gradient).all().item<bool>()) return "";
  return at::isnan(gradient).any().item<bool>() ? "NaN" : "Inf";
}

}  // namespace

Checks::Checks(const Options& options, int rank, Log log)
    : buckets_(options.check_buckets),
      large_(options.check_large),
      parameters_(options.check_parameters),
      name_(options.name),
      rank_(rank),
      log_(std::move(log)) {}

std::string Checks::faulty_members(const Gradients& gradients) const {
  std::string out;
  for (int i = 0; i < gradients.members(); ++i)
    if (const std::string fault = gradient_error(gradients.gradient(i)); !fault.empty())
      out += (out.empty() ? "" : ", ") + gradients.name(i) + " (" + fault + ")";
  return out;
}

void Checks::look_at(const Gradients& gradients) {
  if ((!buckets_ && !large_) || gradients.whole().is_meta()) return;
  at::NoGradGuard no_gradients;
  const double norm =
      at::linalg_vector_norm(gradients.whole(), 2, std::nullopt, false, at::kDouble).item<double>();
  if (buckets_ && !std::isfinite(norm))
    throw Error(ErrorCode::input, name_,
                "bucket " + std::to_string(gradients.number) + " on rank " + std::to_string(rank_) +
                    " has gradients that are not finite: " + faulty_members(gradients),
                "check the batch and the learning rate, or set check_for_nan_in_grad: false to continue");
  if (!large_ || !std::isfinite(norm)) return;
  if (samples_ < kSamples) {
    ++samples_;
    largest_ = std::max(largest_, norm);
  } else if (norm > kTimesTheLargest * largest_) {
    log_.warning(name_, "the gradients of bucket " + std::to_string(gradients.number) + " have the norm " +
                            std::to_string(norm) + ", but the first " + std::to_string(kSamples) +
                            " had at most " + std::to_string(largest_) + "; its first parameter is " +
                            gradients.name(0));
  }
}

void Checks::look_at_parameters(const Gradients& gradients, int64_t microbatch) const {
  at::NoGradGuard no_gradients;
  if (const std::string names = faulty_members(gradients); !names.empty())
    throw Error(ErrorCode::input, name_,
                "the gradient of a parameter is not finite on rank " + std::to_string(rank_) +
                    " after microbatch " + std::to_string(microbatch) + ": " + names,
                "check the samples of that microbatch, or set report_nan_in_param_grad: false to continue");
}

}  // namespace heddle::megatron_fsdp
