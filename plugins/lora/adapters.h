// Adapters of linear layers (Hu et al. 2021): y = W x + b + s B (A x).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dora.h"
#include "heddle/nn/dropout.h"
#include "heddle/nn/linear.h"

namespace heddle::lora {

struct Shape {
  int64_t rank = 8;
  double scale = 4;    // alpha / rank
  bool xavier = true;  // initialization of A; false: uniform
  double dropout = 0;
  bool before = false;                                 // dropout of the adapter's input; false: of its output
  std::optional<at::ScalarType> dtype = std::nullopt;  // of the trained tensors; empty: the layer's dtype
  bool dora = false;
};

// Returns uniform initial values in [-bound, bound].
Init uniform_within(double bound);

// A [rank, in] and the input dropout, for one layer or for all parts of a layer that files join. They are
// children of the first part, lora_A and lora_dropout.
struct Inner {
  Inner(Linear& first, const std::string& path, const Shape& shape);
  Linear down;
  std::optional<Dropout> dropout;
};

// Children of a layer: lora_B [out, rank], lora_dropout with output dropout, and lora_magnitude_vector [out]
// with DoRA.
struct Adapter {
  Adapter(Linear& layer, const std::string& path, const Shape& shape, std::shared_ptr<Inner> inner);
  Linear& layer;
  std::shared_ptr<Inner> inner;
  Linear up;
  std::optional<Dropout> dropout;
  std::optional<Magnitude> magnitude;
};

// Adapters of the layers of one module. Layers with the same input, such as q, k and v, are still computed by
// one call.
class Adapters {
 public:
  explicit Adapters(const Shape& shape) : shape_(shape) {}
  // Adds a layer with its own A.
  void add(Linear& layer, const std::string& path);
  // Adds another part of the file layer to which the last added layer belongs. It shares the A of that layer.
  void add_part(Linear& layer, const std::string& path);
  // Gives the layers one link, which owns the adapters.
  static void link(std::shared_ptr<const Adapters> adapters);

 private:
  using Next = Linear::Instead::Next;
  // Inputs of an adapter's output: x after dropout, and A x s.
  struct Entered {
    at::Tensor x, low;
  };
  model::FewTensors outputs(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                            const Next& next) const;
  Entered enter(Inner& inner, const at::Tensor& x, const Batch& batch) const;
  // Returns onto + the adapter's output.
  at::Tensor added(Adapter& adapter, const at::Tensor& onto, const at::Tensor& low, const Batch& batch) const;
  at::Tensor plus_up(Adapter& adapter, const at::Tensor& onto, const at::Tensor& low,
                     const Batch& batch) const;
  // base: the layer's own output.
  at::Tensor scaled(Adapter& adapter, const at::Tensor& base, const Entered& in, const Batch& batch,
                    const Next& next) const;
  Adapter* of(const Linear* layer) const;

  Shape shape_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
};

}  // namespace heddle::lora
