// Joins matrices by their addresses.
#include "lib/nn/linear_products.h"

#include <ATen/ops/cat.h>

#include <utility>

#include "heddle/model/region.h"
#include "heddle/nn/linear.h"

namespace heddle::model {
namespace {

// In place, each layer's columns.
at::Tensor with_biases(at::Tensor all, const FewWeights& layers) {
  int64_t at = 0;
  for (const Weights& layer : layers) {
    if (layer.bias.defined()) all.narrow(1, at, layer.weight.size(0)).add_(layer.bias);
    at += layer.weight.size(0);
  }
  return all;
}

}  // namespace

at::Tensor rows_of(const at::Tensor& x) {
  return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)});
}

at::Tensor shaped(at::Tensor y, const at::Tensor& x) {
  if (x.dim() == 2) return y;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = y.size(-1);
  return y.view(shape);
}

at::Tensor product(const at::Tensor& residual, const at::Tensor& x, const Weights& layer) {
  const at::Tensor rows = rows_of(x), turned = layer.weight.t();
  at::Tensor y;
  if (residual.defined()) {
    y = matrix_product(rows, turned, rows_of(residual));
    if (layer.bias.defined()) y.add_(layer.bias);
  } else {
    y = matrix_product(rows, turned, layer.bias);
  }
  return shaped(std::move(y), x);
}

bool multiply_joined(const at::Tensor& x, const FewWeights& layers, FewTensors& out) {
  FewTensors weights;
  for (const Weights& layer : layers) weights.push_back(layer.weight);
  const at::Tensor joined = joined_rows(weights);
  if (!joined.defined()) return false;
  const at::Tensor all =
      once(Operator::product, [&] { return with_biases(matrix_product(rows_of(x), joined.t()), layers); });
  int64_t at = 0;
  for (const Weights& layer : layers) {
    const int64_t count = layer.weight.size(0);
    out.push_back(shaped(all.narrow(1, at, count), x));
    at += count;
  }
  return true;
}

at::Tensor joined_rows(std::span<const at::Tensor> parts) {
  const at::Tensor& first = parts[0];
  int64_t end = first.storage_offset(), rows = 0;
  for (const at::Tensor& part : parts) {
    if (part.storage().unsafeGetStorageImpl() != first.storage().unsafeGetStorageImpl() ||
        part.storage_offset() != end || part.scalar_type() != first.scalar_type() ||
        part.size(1) != first.size(1) || !part.is_contiguous())
      return {};
    end += part.numel();
    rows += part.size(0);
  }
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1});
}

at::Tensor joined_columns(const std::vector<at::Tensor>& parts) {
  const at::Tensor first = rows_of(parts[0]);
  const int64_t stride = first.stride(0);
  FewTensors matrices;
  int64_t end = first.storage_offset(), columns = 0;
  bool side_by_side = true;
  for (const at::Tensor& part : parts) {
    matrices.push_back(rows_of(part));
    const at::Tensor& matrix = matrices.back();
    side_by_side = side_by_side &&
                   matrix.storage().unsafeGetStorageImpl() == first.storage().unsafeGetStorageImpl() &&
                   matrix.storage_offset() == end && matrix.stride(0) == stride && matrix.stride(1) == 1;
    end += matrix.size(1);
    columns += matrix.size(1);
  }
  if (!side_by_side || columns > stride) return at::cat(at::TensorList(matrices.data(), matrices.size()), 1);
  return first.as_strided({first.size(0), columns}, {stride, 1});
}

}  // namespace heddle::model
