// Sorting by counting on the host, by a stable sort elsewhere.
#include "heddle/nn/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/nn/device_ops.h"
#include "heddle/ops/compute_log.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/cpu/row_kernels.h"
#include "lib/nn/meta/recorded_kernels.h"

namespace heddle::model {
namespace {

void check_expert(int64_t expert, int64_t experts) {
  if (expert >= -1 && expert < experts) return;
  throw Error(ErrorCode::internal, "experts",
              "expert " + std::to_string(expert) + " was chosen, and there are " + std::to_string(experts),
              "give the local number of an expert, or -1");
}

ExpertRows by_counting(const at::Tensor& flat, int64_t experts, int64_t k) {
  ExpertRows out;
  out.begins.assign(experts + 1, 0);
  const int64_t slots = flat.numel();
  const int64_t* chosen = flat.const_data_ptr<int64_t>();
  for (int64_t slot = 0; slot < slots; ++slot) {
    check_expert(chosen[slot], experts);
    if (chosen[slot] >= 0) ++out.begins[chosen[slot] + 1];
  }
  for (int64_t e = 0; e < experts; ++e) out.begins[e + 1] += out.begins[e];
  out.tokens = at::empty({out.count()}, at::kLong);
  out.slots = at::empty({out.count()}, at::kLong);
  out.rows = at::empty({slots}, at::kLong);
  int64_t* const tokens = out.tokens.mutable_data_ptr<int64_t>();
  int64_t* const slot_of = out.slots.mutable_data_ptr<int64_t>();
  int64_t* const rows = out.rows.mutable_data_ptr<int64_t>();
  std::vector<int64_t> next(out.begins.begin(), out.begins.end() - 1);
  for (int64_t slot = 0; slot < slots; ++slot) {
    rows[slot] = -1;
    if (chosen[slot] < 0) continue;
    const int64_t row = next[chosen[slot]]++;
    tokens[row] = slot / k;
    slot_of[row] = slot;
    rows[slot] = row;
  }
  return out;
}

ExpertRows by_sorting(const at::Tensor& flat, int64_t experts, int64_t k) {
  const auto [sorted, order] = at::sort(flat, /*stable=*/true, 0, false);
  const at::Tensor bounds = at::searchsorted(sorted, at::arange(experts + 1, flat.options())).cpu();
  const int64_t* const bound = bounds.const_data_ptr<int64_t>();
  ExpertRows out;
  for (int64_t e = 0; e <= experts; ++e) out.begins.push_back(bound[e] - bound[0]);
  if (bound[experts] != flat.numel()) check_expert(sorted[-1].item<int64_t>(), experts);
  out.slots = order.narrow(0, bound[0], out.count());
  out.tokens = out.slots.floor_divide(k);
  out.rows = at::full({flat.numel()}, -1, flat.options());
  out.rows.index_copy_(0, out.slots, at::arange(out.count(), flat.options()));
  return out;
}

ExpertRows evenly(const at::Tensor& flat, int64_t experts) {
  ExpertRows out;
  for (int64_t e = 0; e <= experts; ++e) out.begins.push_back(flat.numel() * e / experts);
  for (at::Tensor* indices : {&out.tokens, &out.slots, &out.rows})
    *indices = at::empty({flat.numel()}, flat.options());
  return out;
}

}  // namespace

ExpertRows sort_by_expert(const at::Tensor& chosen, int64_t experts) {
  const at::Tensor flat = chosen.reshape({-1});
  if (flat.is_meta()) return evenly(flat, experts);
  return flat.is_cpu() ? by_counting(flat, experts, chosen.size(1))
                       : by_sorting(flat, experts, chosen.size(1));
}

at::Tensor take_rows(const at::Tensor& x, const ExpertRows& rows) {
  if (!x.is_meta()) return at::index_select(x, 0, rows.tokens);
  const at::Tensor out = at::empty({rows.count(), x.size(1)}, x.options().requires_grad(false));
  const auto bytes = static_cast<double>(out.nbytes());
  record_operator("heddle::take_rows", {static_cast<double>(out.numel()),
                                        bytes + static_cast<double>(rows.tokens.nbytes()), bytes});
  return out;
}

at::Tensor combine_rows(const at::Tensor& of_rows, const ExpertRows& rows, int64_t tokens) {
  if (has_kernel(of_rows)) return combine_rows_cpu(of_rows, rows.rows, tokens);
  const int64_t width = of_rows.size(1);
  const auto kernel =
      of_rows.is_meta() ? recorded_kernels().combine_rows : device_kernel(&DeviceOps::combine_rows, of_rows);
  if (kernel != nullptr)
    if (const at::Tensor out = at::empty({tokens, width}, of_rows.options());
        kernel(of_rows.contiguous(), rows.rows, out))
      return out;
  const int64_t k = tokens == 0 ? 1 : rows.rows.numel() / tokens;
  const at::Tensor padded = at::cat({of_rows, at::zeros({1, width}, of_rows.options())});
  const at::Tensor places = at::where(rows.rows.lt(0), rows.count(), rows.rows);
  return at::index_select(padded, 0, places).view({tokens, k, width}).sum(1);
}

}  // namespace heddle::model
