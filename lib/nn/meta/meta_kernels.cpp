// The kernels of device_ops.h for meta tensors: each records its cost and computes nothing.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <initializer_list>

#include "heddle/nn/device_ops.h"
#include "heddle/nn/experts.h"
#include "heddle/ops/compute_log.h"
#include "lib/nn/meta/recorded_kernels.h"

namespace heddle::model {
namespace {

double elements(const at::Tensor& x) {
  return x.defined() ? static_cast<double>(x.numel()) : 0;
}

double bytes(std::initializer_list<const at::Tensor*> tensors) {
  double sum = 0;
  for (const at::Tensor* x : tensors)
    if (x->defined()) sum += elements(*x) * static_cast<double>(x->element_size());
  return sum;
}

bool rms_norm(const at::Tensor& x, const at::Tensor& weight, double /*eps*/, bool /*plus_one*/,
              const at::Tensor& y, const at::Tensor& roots) {
  record_operator("heddle::rms_norm", {4 * elements(x), bytes({&x, &weight}), bytes({&y, &roots})});
  return true;
}

bool rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& roots, bool /*plus_one*/, const at::Tensor& dx,
                       const at::Tensor& dw) {
  record_operator("heddle::rms_norm_backward",
                  {8 * elements(x), bytes({&dy, &x, &weight, &roots}), bytes({&dx, &dw})});
  return true;
}

bool swiglu(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y) {
  record_operator("heddle::swiglu", {5 * elements(y), bytes({&gate, &up}), bytes({&y})});
  return true;
}

bool swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& d_both) {
  record_operator("heddle::swiglu_backward", {10 * elements(dy), bytes({&dy, &gate, &up}), bytes({&d_both})});
  return true;
}

bool expert_activation(const ExpertActivation& /*how*/, const at::Tensor& hidden, const at::Tensor& weights,
                       const at::Tensor& y) {
  record_operator("heddle::expert_activation", {6 * elements(y), bytes({&hidden, &weights}), bytes({&y})});
  return true;
}

bool expert_activation_backward(const ExpertActivation& /*how*/, const at::Tensor& dy,
                                const at::Tensor& hidden, const at::Tensor& weights,
                                const at::Tensor& d_hidden, const at::Tensor& d_weights,
                                const at::Tensor& y) {
  record_operator("heddle::expert_activation_backward",
                  {14 * elements(y), bytes({&dy, &hidden, &weights}), bytes({&d_hidden, &d_weights, &y})});
  return true;
}

bool combine_rows(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& out) {
  record_operator("heddle::combine_rows", {elements(rows), bytes({&rows, &places}), bytes({&out})});
  return true;
}

bool rotate(const at::Tensor& x, const RotaryAngles& /*angles*/, double /*direction*/) {
  record_operator("heddle::rotate", {3 * elements(x), bytes({&x}), bytes({&x})});
  return true;
}

bool token_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& counted,
                double /*soft_cap*/, bool with_gradient, const at::Tensor& losses) {
  record_operator("heddle::token_loss", {5 * elements(logits), bytes({&logits, &labels, &counted}),
                                         bytes({&losses}) + (with_gradient ? bytes({&logits}) : 0)});
  return true;
}

bool scale(const at::Tensor& x, const at::Tensor& factor) {
  record_operator("heddle::scale", {elements(x), bytes({&x, &factor}), bytes({&x})});
  return true;
}

bool round_fp8(const at::Tensor& x, const at::Tensor& value, const at::Tensor& across,
               const at::Tensor& inverse) {
  // Once for the largest number, once to round.
  record_operator("heddle::round_fp8",
                  {2 * elements(x), 2 * bytes({&x}), bytes({&value, &across, &inverse})});
  return true;
}

at::Tensor grouped_product(const at::Tensor& a, const at::Tensor& b, std::span<const int64_t> begins) {
  const auto groups = static_cast<int64_t>(begins.size()) - 1;
  const int64_t columns = b.size(-1);
  const at::Tensor out = b.dim() == 3 ? at::empty({a.size(0), columns}, a.options())
                                      : at::empty({groups, a.size(0), columns}, a.options());
  record_operator("heddle::grouped_product",
                  {2 * elements(a) * static_cast<double>(columns), bytes({&a, &b}), bytes({&out})},
                  b.dim() == 3 ? ProductShape{groups, a.size(0) / std::max<int64_t>(groups, 1), columns,
                                              a.size(1), a.scalar_type()}
                               : ProductShape{groups, a.size(0), columns,
                                              a.size(1) / std::max<int64_t>(groups, 1), a.scalar_type()});
  return out;
}

bool add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  record_operator("heddle::add_product",
                  {2 * elements(a) * static_cast<double>(b.size(1)), bytes({&a, &b, &sum}), bytes({&sum})},
                  ProductShape{1, a.size(0), b.size(1), a.size(1), a.scalar_type()});
  return true;
}

constexpr DeviceOps kRecorded{rms_norm,
                              rms_norm_backward,
                              swiglu,
                              swiglu_backward,
                              expert_activation,
                              expert_activation_backward,
                              combine_rows,
                              rotate,
                              token_loss,
                              scale,
                              round_fp8,
                              grouped_product,
                              add_product};
constexpr DeviceOps kNone;
thread_local const DeviceOps* active = &kNone;

}  // namespace

MetaKernels::MetaKernels() {
  active = &kRecorded;
}

MetaKernels::~MetaKernels() {
  active = &kNone;
}

const DeviceOps& meta_ops() {
  return *active;
}

const DeviceOps& recorded_kernels() {
  return kRecorded;
}

}  // namespace heddle::model
