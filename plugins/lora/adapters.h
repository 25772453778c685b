// Adapters of linear layers (Hu et al. 2021): y + B (A x) s beside y = W x + b.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "heddle/nn/linear.h"

namespace heddle::lora {

struct Shape {
  int64_t rank = 8;
  double scale = 4;    // alpha / rank
  bool xavier = true;  // A's first values; else uniform
};

// Children lora_A [rank, in] and lora_B [out, rank] of a layer.
struct Adapter {
  Adapter(Linear& layer, const Shape& shape);
  Linear& layer;
  Linear down, up;
};

// Of the layers of one module: those of one input, such as q, k and v, are still computed by one call.
class Adapters {
 public:
  explicit Adapters(double scale) : scale_(scale) {}
  void add(Linear& layer, const Shape& shape);
  // Gives the layers one link, which owns the adapters.
  static void link(std::shared_ptr<const Adapters> adapters);

 private:
  using Next = Linear::Instead::Next;
  model::FewTensors outputs(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                            const Next& next) const;
  Adapter* of(const Linear* layer) const;

  double scale_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
};

}  // namespace heddle::lora
