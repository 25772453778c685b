// Adapters of experts as grouped products of a low rank beside those of the base. Below autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"

namespace heddle::model {

// The adapter of one product: A [experts, rank, in], B [experts, out, rank].
struct ExpertAdapter {
  at::Tensor a, b;
  double scale = 1;
};

// onto += scale * B (A x), by expert: x [rows, in], onto [rows, out].
void add_adapter(at::Tensor& onto, const at::Tensor& x, const ExpertAdapter& adapter,
                 std::span<const int64_t> begins);

// dx += the adapter's part of the gradient of x. Returns what A's gradient is made of, [rows, rank].
at::Tensor add_adapter_back(at::Tensor& dx, const at::Tensor& dy, const ExpertAdapter& adapter,
                            std::span<const int64_t> begins);

// `back`: of add_adapter_back().
at::Tensor gradient_of_a(const at::Tensor& back, const at::Tensor& x, std::span<const int64_t> begins);
at::Tensor gradient_of_b(const at::Tensor& dy, const at::Tensor& x, const ExpertAdapter& adapter,
                         std::span<const int64_t> begins);

// An adapter as a node keeps it for the backward.
struct SavedAdapter {
  Saved a, b;
  double scale = 1;

  void save(const ExpertAdapter& adapter);
  // In the dtype of the computation.
  ExpertAdapter unpack(Autocast* autocast);
  void reset();
};

}  // namespace heddle::model
