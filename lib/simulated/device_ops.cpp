// References of the kernels of plugins/nccl, in float. What a kernel need not write is poisoned.
#include "lib/simulated/device_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_chunk_cat.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <torch/library.h>

#include <cmath>

#include "heddle/nn/device_ops.h"
#include "heddle/nn/experts.h"
#include "lib/simulated/alias.h"

namespace heddle::simulated {
namespace {

using Seen = std::vector<at::Tensor>;

bool is_taken(std::initializer_list<const at::Tensor*> tensors) {
  const at::ScalarType dtype = (*tensors.begin())->scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16) return false;
  for (const at::Tensor* one : tensors)
    if (one->defined() && one->scalar_type() != dtype) return false;
  return true;
}

at::Tensor wide(const at::Tensor& x) {
  return x.to(at::kFloat);
}

at::Tensor by_row(const at::Tensor& x, const at::Tensor& weight) {
  return wide(x).reshape({-1, weight.numel()});
}

bool rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, bool plus_one, const at::Tensor& y,
              const at::Tensor& roots) {
  if (!is_taken({&x, &weight, &y}) || !x.is_contiguous()) return false;
  launch_kernel("rms_norm", {{x}, {weight}, {y, true}, {roots, true}}, [eps, plus_one](const Seen& of) {
    const at::Tensor rows = by_row(of[0], of[1]);
    of[3].copy_((rows * rows).mean(-1, true).add(eps).rsqrt());
    of[2].copy_((rows * of[3] * (wide(of[1]) + (plus_one ? 1 : 0))).view(of[2].sizes()));
  });
  return true;
}

bool rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& roots, bool plus_one, const at::Tensor& dx, const at::Tensor& dw) {
  if (!is_taken({&x, &dy, &weight, &dx, &dw}) || !x.is_contiguous()) return false;
  const at::Tensor sums = dw.defined() ? at::empty({1, weight.numel()}, roots.options()) : at::Tensor();
  launch_kernel("rms_norm_backward", {{dy.contiguous()}, {x}, {weight}, {roots}, {dx, true}, {sums, true}},
                [plus_one](const Seen& of) {
                  const at::Tensor d = by_row(of[0], of[2]), normal = by_row(of[1], of[2]) * of[3];
                  const at::Tensor dn = d * (wide(of[2]) + (plus_one ? 1 : 0));
                  if (of[5].defined()) of[5].copy_((d * normal).sum(0, true));
                  if (!of[4].defined()) return;
                  const at::Tensor along = (dn * normal).mean(-1, true);
                  of[4].copy_(((dn - normal * along) * of[3]).view(of[4].sizes()));
                });
  if (dw.defined()) dw.view({weight.numel()}).copy_(sums.sum(0));
  return true;
}

bool swiglu(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y) {
  if (!is_taken({&gate, &up, &y})) return false;
  launch_kernel("swiglu", {{gate}, {up}, {y, true}},
                [](const Seen& of) { of[2].copy_(at::silu(wide(of[0])) * wide(of[1])); });
  return true;
}

bool swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                     const at::Tensor& d_both) {
  if (!is_taken({&dy, &gate, &up, &d_both})) return false;
  launch_kernel("swiglu_backward", {{dy}, {gate}, {up}, {d_both, true}}, [](const Seen& of) {
    const at::Tensor g = wide(of[1]), d = wide(of[0]), s = at::sigmoid(g);
    of[3].copy_(at::cat({d * wide(of[2]) * s * (1 + g * (1 - s)), d * g * s}, 1));
  });
  return true;
}

// The numbers of the CPU's kernels for float.
bool expert_activation(const model::ExpertActivation& how, const at::Tensor& hidden,
                       const at::Tensor& weights, const at::Tensor& y) {
  if (!is_taken({&hidden, &y}) || !hidden.is_contiguous() || weights.scalar_type() != at::kFloat)
    return false;
  launch_kernel("expert_activation", {{hidden}, {weights}, {y, true}},
                [how](const Seen& of) { of[2].copy_(model::activate(how, wide(of[0]), of[1])); });
  return true;
}

bool expert_activation_backward(const model::ExpertActivation& how, const at::Tensor& dy,
                                const at::Tensor& hidden, const at::Tensor& weights,
                                const at::Tensor& d_hidden, const at::Tensor& d_weights,
                                const at::Tensor& y) {
  if (!is_taken({&dy, &hidden, &d_hidden, &y}) || !hidden.is_contiguous() ||
      weights.scalar_type() != at::kFloat)
    return false;
  launch_kernel("expert_activation_backward",
                {{dy}, {hidden}, {weights}, {d_hidden, true}, {d_weights, true}, {y, true}},
                [how](const Seen& of) {
                  const auto gradients = model::activate_backward(how, wide(of[0]), wide(of[1]), of[2]);
                  of[3].copy_(gradients.hidden);
                  of[4].copy_(gradients.weights);
                  of[5].copy_(gradients.y);
                });
  return true;
}

bool combine_rows(const at::Tensor& rows, const at::Tensor& places, const at::Tensor& out) {
  if (!is_taken({&rows, &out}) || out.size(0) == 0) return false;
  launch_kernel("combine_rows", {{rows}, {places}, {out, true}}, [](const Seen& of) {
    const at::Tensor found = of[1].view({of[2].size(0), -1});
    at::Tensor sum = at::zeros(of[2].sizes(), at::kFloat);
    for (int64_t choice = 0; choice < found.size(1); ++choice) {
      const at::Tensor place = found.select(1, choice), there = place.ge(0).nonzero().squeeze(1);
      sum.index_add_(0, there, wide(of[0].index_select(0, place.index_select(0, there))));
    }
    of[2].copy_(sum);
  });
  return true;
}

bool rotate(const at::Tensor& x, const model::RotaryAngles& angles, double direction) {
  const model::HeadPart part = angles.part;
  const int64_t half = angles.cos.size(1), head = part.head_dim > 0 ? part.head_dim : 2 * half;
  if (!is_taken({&x}) || x.dim() != 2 || angles.cos.size(0) != x.size(0) || x.size(1) % head != 0)
    return false;
  launch_kernel("rotate", {{x, true}, {angles.cos}, {angles.sin}}, [=](const Seen& of) {
    const at::Tensor heads = of[0].unflatten(1, {-1, head}).narrow(2, part.first, 2 * half);
    const at::Tensor pairs =
        part.interleaved ? heads.unflatten(2, {half, 2}) : heads.unflatten(2, {2, half}).transpose(2, 3);
    const at::Tensor a = wide(pairs.select(3, 0)), b = wide(pairs.select(3, 1));
    const at::Tensor c = of[1].unsqueeze(1), s = of[2].unsqueeze(1) * direction;
    const at::Tensor first = a * c - b * s, second = b * c + a * s;
    pairs.select(3, 0).copy_(first);
    pairs.select(3, 1).copy_(second);
  });
  return true;
}

bool token_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& counted,
                double soft_cap, bool with_gradient, const at::Tensor& losses) {
  if (!is_taken({&logits}) || !logits.is_contiguous() || counted.scalar_type() != at::kFloat) return false;
  launch_kernel("token_loss", {{logits, with_gradient}, {labels}, {counted}, {losses, true}},
                [=](const Seen& of) {
                  const at::Tensor given = wide(of[0]);
                  const at::Tensor turned = soft_cap > 0 ? at::tanh(given / soft_cap) : given;
                  const at::Tensor logs = at::log_softmax(soft_cap > 0 ? turned * soft_cap : given, 1);
                  const at::Tensor at_label = of[1].clamp(0, given.size(1) - 1);
                  of[3].copy_((-logs.gather(1, at_label) * of[2]).view(of[3].sizes()));
                  if (!with_gradient) return;
                  at::Tensor d = logs.exp();
                  d.scatter_add_(1, at_label, at::full_like(of[2], -1));
                  d.mul_(of[2]);
                  of[0].copy_(soft_cap > 0 ? d * (1 - turned * turned) : d);
                });
  return true;
}

bool scale(const at::Tensor& x, const at::Tensor& factor) {
  if (!is_taken({&x}) || !x.is_contiguous() || factor.numel() != 1) return false;
  launch_kernel("scale", {{x, true}, {factor}}, [](const Seen& of) { of[0].copy_(wide(of[0]) * of[1]); });
  return true;
}

// Rows [begins[g], begins[g + 1]) of each group, in one launch.
at::Tensor grouped_product(const at::Tensor& a, const at::Tensor& b, std::span<const int64_t> begins) {
  if (a.scalar_type() != at::kBFloat16 || b.scalar_type() != at::kBFloat16 || a.size(0) == 0) return {};
  const std::vector<int64_t> at(begins.begin(), begins.end());
  const auto groups = static_cast<int64_t>(at.size()) - 1;
  const bool by_rows = b.dim() == 3;
  const at::Tensor out = by_rows ? at::empty({a.size(0), b.size(2)}, a.options())
                                 : at::empty({groups, a.size(0), b.size(1)}, a.options());
  launch_kernel("grouped_product", {{a}, {b}, {out, true}}, [=](const Seen& of) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t first = at[static_cast<size_t>(group)],
                    count = at[static_cast<size_t>(group) + 1] - first;
      const auto rows = [&](const at::Tensor& x, int64_t dim) { return wide(x.narrow(dim, first, count)); };
      if (by_rows)
        of[2].narrow(0, first, count).copy_(at::mm(rows(of[0], 0), wide(of[1][group])));
      else
        of[2][group].copy_(at::mm(rows(of[0], 1), rows(of[1], 0)));
      if (!by_rows && count == 0) of[2][group].fill_(std::nan(""));  // as LibTorch's product on Blackwell
    }
  });
  return out;
}

bool add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != at::kBFloat16 || b.scalar_type() != a.scalar_type() ||
      sum.scalar_type() != at::kFloat)
    return false;
  launch_kernel("add_product", {{sum, true}, {a}, {b}},
                [](const Seen& of) { of[0].add_(at::mm(wide(of[1]), wide(of[2]))); });
  return true;
}

// One launch on a GPU too, where the tensors lie side by side.
void copy_each(at::TensorList to, at::TensorList from, bool) {
  std::vector<Touched> touched;
  for (const at::Tensor& one : to) touched.push_back({one, true});
  for (const at::Tensor& one : from) touched.push_back({one});
  launch_kernel("_foreach_copy_", touched, [count = to.size()](const Seen& of) {
    for (size_t i = 0; i < count; ++i) of[i].copy_(of[count + i]);
  });
}

at::Tensor& chunk_cat(at::TensorList tensors, int64_t dim, int64_t chunks, at::Tensor& out) {
  std::vector<Touched> touched{{out, true}};
  for (const at::Tensor& one : tensors) touched.push_back({one});
  launch_kernel("_chunk_cat", touched, [dim, chunks](const Seen& of) {
    of[0].copy_(at::_chunk_cat(at::TensorList(of).slice(1), dim, chunks));
  });
  return out;
}

}  // namespace

void launch_kernel(const std::string& name, const std::vector<Touched>& tensors, Kernel run) {
  std::vector<Range> ranges;
  Seen seen;
  int device = -1;
  for (const Touched& one : tensors) {
    seen.push_back(kernel_alias(one.tensor));
    if (!one.tensor.defined() || !one.tensor.is_cuda()) continue;
    if (device < 0) device = one.tensor.get_device();
    ranges.push_back(range_of(one.tensor, one.writes));
  }
  Machine::get().launch(current_index(device),
                        {"heddle::" + name,
                         [seen = std::move(seen), run = std::move(run)] {
                           const BelowAll below;
                           run(seen);
                         },
                         {},
                         nullptr},
                        ranges);
}

void offer_device_ops() {
  model::DeviceOps ops;
  ops.rms_norm = rms_norm;
  ops.rms_norm_backward = rms_norm_backward;
  ops.swiglu = swiglu;
  ops.swiglu_backward = swiglu_backward;
  ops.expert_activation = expert_activation;
  ops.expert_activation_backward = expert_activation_backward;
  ops.combine_rows = combine_rows;
  ops.rotate = rotate;
  ops.token_loss = token_loss;
  ops.scale = scale;
  ops.grouped_product = grouped_product;
  ops.add_product = add_product;
  model::set_device_ops(ops);
}

}  // namespace heddle::simulated

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_foreach_copy_", TORCH_FN(heddle::simulated::copy_each));
  library.impl("_chunk_cat.out", TORCH_FN(heddle::simulated::chunk_cat));
}
