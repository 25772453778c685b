// Adapters of linear layers (Hu et al. 2021): y + B (A x) s beside y = W x + b.
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
  bool xavier = true;  // A's first values; else uniform
  double dropout = 0;
  bool before = false;                                 // dropout of the adapter's input; else of its output
  std::optional<at::ScalarType> dtype = std::nullopt;  // of what trains; empty: the layer's
  bool dora = false;
};

// Uniform in [-bound, bound].
Init uniform_within(double bound);

// A [rank, in] and the dropout of its input: of one layer, or of all parts of a layer that files join. They
// are children of the first of these, lora_A and lora_dropout.
struct Inner {
  Inner(Linear& first, const std::string& path, const Shape& shape);
  Linear down;
  std::optional<Dropout> dropout;
};

// Children lora_B [out, rank] of a layer, lora_dropout where numbers of its output are dropped, and
// lora_magnitude_vector [out] of DoRA.
struct Adapter {
  Adapter(Linear& layer, const std::string& path, const Shape& shape, std::shared_ptr<Inner> inner);
  Linear& layer;
  std::shared_ptr<Inner> inner;
  Linear up;
  std::optional<Dropout> dropout;
  std::optional<Magnitude> magnitude;
};

// Of the layers of one module: those of one input, such as q, k and v, are still computed by one call.
class Adapters {
 public:
  explicit Adapters(const Shape& shape) : shape_(shape) {}
  // A layer, with an A of its own.
  void add(Linear& layer, const std::string& path);
  // A further part of the layer in files that the one added last is a part of: it has the same A.
  void add_part(Linear& layer, const std::string& path);
  // Gives the layers one link, which owns the adapters.
  static void link(std::shared_ptr<const Adapters> adapters);

 private:
  using Next = Linear::Instead::Next;
  // What an adapter computes with: x after its dropout, and A x s.
  struct Entered {
    at::Tensor x, low;
  };
  model::FewTensors outputs(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                            const Next& next) const;
  Entered enter(Inner& inner, const at::Tensor& x, const Batch& batch) const;
  // onto + the adapter's output.
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
