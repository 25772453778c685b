// Launches of heddle's kernels for the layers: supported dtypes and layouts, and grid sizes.
#include "cuda/device_ops.h"

#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <initializer_list>

#include "cuda/check.h"
#include "cuda/kernel_library.h"
#include "heddle/nn/device_ops.h"
#include "heddle/nn/experts.h"

namespace heddle::nccl {
namespace {

constexpr int64_t kMostShared = 48 * 1024;  // bytes available without opt-in
constexpr int64_t kMostBlocks = 4096;       // of kernels that loop over elements
constexpr int64_t kNormBlocks = 264;        // two per multiprocessor of a large GPU

// A kernel for float and bfloat16, in a version for 16 bytes at a time and one for single elements.
class Kernel {
 public:
  explicit Kernel(const std::string& name) {
    const KernelLibrary& library = KernelLibrary::get();
    kernels_[0] = library.find(name + "_float_single");
    kernels_[1] = library.find(name + "_float_wide");
    kernels_[2] = library.find(name + "_bf16_single");
    kernels_[3] = library.find(name + "_bf16_wide");
  }
  cudaKernel_t of(at::ScalarType dtype, bool is_wide) const {
    return kernels_[static_cast<size_t>((dtype == at::kBFloat16 ? 2 : 0) + (is_wide ? 1 : 0))];
  }

 private:
  std::array<cudaKernel_t, 4> kernels_;
};

cudaStream_t stream() {
  return c10::cuda::getCurrentCUDAStream().stream();
}

// Returns whether x is on the current device. False for undefined tensors.
bool is_here(const at::Tensor& x) {
  return !x.defined() || (x.is_cuda() && x.get_device() == c10::cuda::current_device());
}

// Returns whether all tensors share one dtype that has kernels.
bool is_taken(std::initializer_list<const at::Tensor*> tensors) {
  const at::ScalarType dtype = (*tensors.begin())->scalar_type();
  return (dtype == at::kFloat || dtype == at::kBFloat16) &&
         std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor* x) {
           return !x->defined() || (is_here(*x) && x->scalar_type() == dtype);
         });
}

// Returns whether all tensors are contiguous and have this dtype.
bool are_plain(at::ScalarType dtype, std::initializer_list<const at::Tensor*> tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor* x) {
    return is_here(*x) && x->is_contiguous() && x->scalar_type() == dtype;
  });
}

// Returns whether rows are contiguous. There may be gaps between rows.
bool has_rows(const at::Tensor& x) {
  return x.dim() == 2 && (x.stride(1) == 1 || x.size(1) == 1) && x.size(0) > 0 && x.size(1) > 0;
}

int64_t pack_size(const at::Tensor& x) {
  return 16 / x.element_size();
}

// Returns whether every row of `width` elements begins and ends at a multiple of 16 bytes.
bool is_wide(const at::Tensor& x, int64_t row_stride, int64_t width) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 && row_stride % pack_size(x) == 0 &&
         width % pack_size(x) == 0;
}

bool are_wide(std::initializer_list<const at::Tensor*> rows, int64_t width) {
  return std::all_of(rows.begin(), rows.end(), [&](const at::Tensor* x) {
    return !x->defined() || is_wide(*x, x->dim() == 2 ? x->stride(0) : 0, width);
  });
}

int64_t blocks_for(int64_t elements, int64_t pack) {
  return std::clamp<int64_t>((elements / pack + kThreads - 1) / kThreads, 1, kMostBlocks);
}

template <class T>
T* data(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.mutable_data_ptr()) : nullptr;
}
const void* read(const at::Tensor& x) {
  return x.const_data_ptr();
}

bool rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool plus_one, const at::Tensor& y,
              const at::Tensor& roots) {
  static const Kernel kernel("rms_norm");
  const int64_t width = weight.numel(), rows = x.numel() / std::max<int64_t>(1, width);
  if (!is_taken({&x, &weight, &y}) || !are_plain(at::kFloat, {&roots}) || !x.is_contiguous() ||
      !weight.is_contiguous() || rows == 0)
    return false;
  const bool wide = is_wide(x, width, width) && is_wide(weight, 0, width) && is_wide(y, width, width);
  launch(kernel.of(x.scalar_type(), wide), rows, 0, stream(), read(x), read(weight), data<void>(y),
         data<float>(roots), static_cast<int>(width), static_cast<float>(eps), plus_one ? 1.0F : 0.0F);
  return true;
}

bool rms_norm_backward(const at::Tensor& dy_given, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& roots, bool plus_one, const at::Tensor& dx, const at::Tensor& dw) {
  static const Kernel kernel("rms_norm_backward");
  const int64_t width = weight.numel(), rows = x.numel() / std::max<int64_t>(1, width);
  const auto shared = static_cast<size_t>(width) * sizeof(float);
  const at::Tensor dy = dy_given.contiguous();
  if (!is_taken({&x, &dy, &weight, &dx, &dw}) || !are_plain(at::kFloat, {&roots}) || !x.is_contiguous() ||
      !weight.is_contiguous() || rows == 0 || static_cast<int64_t>(shared) > kMostShared - 1024)
    return false;
  const int64_t blocks = std::min(rows, kNormBlocks);
  const at::Tensor sums = dw.defined() ? at::empty({blocks, width}, roots.options()) : at::Tensor();
  const bool wide = is_wide(x, width, width) && is_wide(dy, width, width) && is_wide(weight, 0, width) &&
                    (!dx.defined() || is_wide(dx, width, width));
  launch(kernel.of(x.scalar_type(), wide), blocks, shared, stream(), read(dy), read(x), read(weight),
         static_cast<const float*>(read(roots)), data<void>(dx), data<float>(sums), static_cast<int>(rows),
         static_cast<int>(width), plus_one ? 1.0F : 0.0F);
  if (dw.defined()) dw.view({width}).copy_(sums.sum(0));
  return true;
}

bool swiglu(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y) {
  static const Kernel kernel("swiglu");
  if (!is_taken({&gate, &up, &y}) || !has_rows(gate) || !has_rows(up)) return false;
  const int64_t width = gate.size(1);
  const bool wide = are_wide({&gate, &up, &y}, width);
  launch(kernel.of(y.scalar_type(), wide), blocks_for(y.numel(), wide ? pack_size(y) : 1), 0, stream(),
         read(gate), read(up), data<void>(y), gate.size(0), static_cast<int>(width), gate.stride(0),
         up.stride(0));
  return true;
}

bool swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& d_both) {
  static const Kernel kernel("swiglu_backward");
  if (!is_taken({&dy, &gate, &up, &d_both}) || !has_rows(dy) || !has_rows(gate) || !has_rows(up))
    return false;
  const int64_t width = gate.size(1);
  const bool wide = are_wide({&dy, &gate, &up, &d_both}, width);
  launch(kernel.of(dy.scalar_type(), wide), blocks_for(dy.numel(), wide ? pack_size(dy) : 1), 0, stream(),
         read(dy), read(gate), read(up), data<void>(d_both), gate.size(0), static_cast<int>(width),
         dy.stride(0), gate.stride(0), up.stride(0));
  return true;
}

// Launches `kernel` with the parameters of an activation, 8 rows per block, 16 bytes at a time if `wide`.
template <class... Pointers>
void launch_gated(const Kernel& kernel, const model::ExpertActivation& how, const at::Tensor& y, bool wide,
                  Pointers... pointers) {
  constexpr int64_t kRows = kThreads / 32;
  using Kind = model::ExpertActivation::Kind;
  const bool is_situ = how.kind == Kind::situ;
  const int64_t blocks = std::clamp<int64_t>((y.size(0) + kRows - 1) / kRows, 1, kMostBlocks);
  launch(kernel.of(y.scalar_type(), wide), blocks, 0, stream(), pointers..., y.size(0),
         static_cast<int>(y.size(1)), static_cast<int>(how.kind),
         static_cast<float>(is_situ ? how.situ.beta : how.alpha),
         static_cast<float>(is_situ ? how.situ.bound : how.limit), static_cast<float>(how.shift),
         how.interleaved && how.kind != Kind::relu2 ? 1 : 0);
}

// Returns whether all tensors are contiguous and share one dtype that has kernels, and the weights are float.
bool takes_experts(const at::Tensor& weights, std::initializer_list<const at::Tensor*> tensors) {
  return is_taken(tensors) && are_plain(at::kFloat, {&weights}) &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor* x) { return x->is_contiguous() && has_rows(*x); });
}

bool expert_activation(const model::ExpertActivation& how, const at::Tensor& hidden,
                       const at::Tensor& weights, const at::Tensor& y) {
  static const Kernel kernel("expert_activation");
  if (!takes_experts(weights, {&hidden, &y})) return false;
  launch_gated(kernel, how, y, are_wide({&hidden, &y}, y.size(1)), read(hidden),
               static_cast<const float*>(read(weights)), data<void>(y));
  return true;
}

bool expert_activation_backward(const model::ExpertActivation& how, const at::Tensor& dy,
                                const at::Tensor& hidden, const at::Tensor& weights,
                                const at::Tensor& d_hidden, const at::Tensor& d_weights,
                                const at::Tensor& y) {
  static const Kernel kernel("expert_activation_backward");
  if (!takes_experts(weights, {&dy, &hidden, &d_hidden, &y}) || !are_plain(at::kFloat, {&d_weights}))
    return false;
  launch_gated(kernel, how, y, are_wide({&dy, &hidden, &d_hidden, &y}, y.size(1)), read(dy), read(hidden),
               static_cast<const float*>(read(weights)), data<void>(d_hidden), data<float>(d_weights),
               data<void>(y));
  return true;
}

bool combine_rows(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& out) {
  static const Kernel kernel("combine_rows");
  if (!is_taken({&rows, &out}) || !has_rows(rows) || !has_rows(out) || !rows.is_contiguous() ||
      !out.is_contiguous() || !are_plain(at::kLong, {&places}))
    return false;
  const int64_t width = out.size(1);
  const bool wide = are_wide({&rows, &out}, width);
  launch(kernel.of(out.scalar_type(), wide), blocks_for(out.numel(), wide ? pack_size(out) : 1), 0, stream(),
         read(rows), static_cast<const int64_t*>(read(places)), data<void>(out), out.size(0),
         static_cast<int>(places.numel() / out.size(0)), static_cast<int>(width));
  return true;
}

bool rotate(const at::Tensor& x, const model::RotaryAngles& angles, double direction) {
  static const Kernel kernel("rotate");
  static const std::array<cudaKernel_t, 2> interleaved{KernelLibrary::get().find("rotate_interleaved_float"),
                                                       KernelLibrary::get().find("rotate_interleaved_bf16")};
  const model::HeadPart& part = angles.part;
  const int64_t half = angles.cos.size(1), head = part.head_dim > 0 ? part.head_dim : 2 * half;
  const bool is_apart =
      x.size(0) <= 1 || x.stride(0) >= x.size(1);  // rows do not overlap, because the kernel writes in place
  if (!is_taken({&x}) || !has_rows(x) || !is_apart || !are_plain(at::kFloat, {&angles.cos, &angles.sin}) ||
      angles.cos.size(0) != x.size(0) || x.size(1) % head != 0)
    return false;
  const bool wide = !part.interleaved && is_wide(x, x.stride(0), half) && head % pack_size(x) == 0 &&
                    part.first % pack_size(x) == 0;
  const cudaKernel_t chosen = part.interleaved ? interleaved[x.scalar_type() == at::kBFloat16 ? 1 : 0]
                                               : kernel.of(x.scalar_type(), wide);
  const int64_t pairs = x.numel() / head * half;
  launch(chosen, blocks_for(pairs, wide ? pack_size(x) : 1), 0, stream(), data<void>(x), read(angles.cos),
         read(angles.sin), x.size(0), static_cast<int>(x.size(1) / head), x.stride(0), static_cast<int>(head),
         static_cast<int>(part.first), static_cast<int>(half), static_cast<float>(direction));
  return true;
}

bool token_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& counted,
                double soft_cap, bool with_gradient, const at::Tensor& losses) {
  static const Kernel kernel("token_loss");
  if (!is_taken({&logits}) || !has_rows(logits) || !logits.is_contiguous() ||
      !are_plain(at::kFloat, {&counted, &losses}) || !are_plain(at::kLong, {&labels}))
    return false;
  const int64_t width = logits.size(1);
  launch(kernel.of(logits.scalar_type(), is_wide(logits, width, width)), logits.size(0), 0, stream(),
         data<void>(logits), read(labels), read(counted), data<float>(losses), static_cast<int>(width),
         static_cast<float>(soft_cap), with_gradient ? 1 : 0);
  return true;
}

bool scale(const at::Tensor& x, const at::Tensor& factor) {
  static const Kernel kernel("scale");
  if (!is_taken({&x}) || !x.is_contiguous() || x.numel() == 0 || factor.numel() != 1 ||
      !are_plain(at::kFloat, {&factor}))
    return false;
  const bool wide = is_wide(x, 0, x.numel());
  launch(kernel.of(x.scalar_type(), wide), blocks_for(x.numel(), wide ? pack_size(x) : 1), 0, stream(),
         data<void>(x), read(factor), x.numel());
  return true;
}

bool round_fp8(const at::Tensor& x, const at::Tensor& value, const at::Tensor& across,
               const at::Tensor& inverse) {
  static const Kernel most("largest"), round("round_fp8");
  constexpr int64_t kTile = 64, kParts = 1024;
  if (!is_taken({&x}) || !has_rows(x) || !x.is_contiguous() || !are_plain(at::kFloat, {&inverse}))
    return false;
  const bool wide = is_wide(x, 0, x.numel());
  const int64_t parts = std::min(kParts, blocks_for(x.numel(), wide ? pack_size(x) : 1));
  const at::Tensor seen = at::empty({parts}, inverse.options());
  launch(most.of(x.scalar_type(), wide), parts, 0, stream(), read(x), data<float>(seen), x.numel());
  const int64_t tiles = (x.size(0) + kTile - 1) / kTile * ((x.size(1) + kTile - 1) / kTile);
  launch(round.of(x.scalar_type(), is_wide(x, x.size(1), x.size(1))), tiles, 0, stream(), read(x),
         static_cast<const float*>(read(seen)), static_cast<int>(parts), data<void>(value),
         data<void>(across), data<float>(inverse), x.size(0), x.size(1),
         value.scalar_type() == at::kFloat8_e5m2 ? 1 : 0);
  return true;
}

// Checks the requirements of LibTorch's grouped product: contiguous rows or columns, aligned to 16 bytes.
bool is_aligned(const at::Tensor& x) {
  const int64_t rows = x.stride(-2), columns = x.stride(-1);
  const bool is_dense = (columns == 1 && rows % 8 == 0) || (rows == 1 && columns % 8 == 0);
  return is_dense && x.size(-1) > 0 && x.size(-2) > 0 &&
         reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

// Returns the ends of groups, copied asynchronously.
at::Tensor ends_of(std::span<const int64_t> begins, const at::Tensor& like) {
  const auto count = static_cast<int64_t>(begins.size()) - 1;
  const at::Tensor host = at::empty({count}, at::TensorOptions(at::kInt).pinned_memory(true));
  for (int64_t group = 0; group < count; ++group)
    host.mutable_data_ptr<int32_t>()[group] = static_cast<int32_t>(begins[static_cast<size_t>(group) + 1]);
  return host.to(like.device(), at::kInt, /*non_blocking=*/true);
}

at::Tensor grouped_product(const at::Tensor& a, const at::Tensor& b, std::span<const int64_t> begins) {
  const bool is_narrow = a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16;
  if (!is_narrow || !is_aligned(a) || !is_aligned(b) || b.size(-1) % 8 != 0 || a.size(0) == 0) return {};
  return at::_grouped_mm(a, b, ends_of(begins, a));
}

bool add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  const bool is_narrow = a.scalar_type() == at::kBFloat16 || a.scalar_type() == at::kHalf;
  if (!is_narrow || b.scalar_type() != a.scalar_type() || !are_plain(at::kFloat, {&sum})) return false;
  at::Tensor to = sum;
  at::addmm_out(to, sum, a, b, at::kFloat);
  return true;
}

}  // namespace

void offer_device_ops() {
  model::set_device_ops({rms_norm, rms_norm_backward, swiglu, swiglu_backward, expert_activation,
                         expert_activation_backward, combine_rows, rotate, token_loss, scale, round_fp8,
                         grouped_product, add_product});
}

}  // namespace heddle::nccl
