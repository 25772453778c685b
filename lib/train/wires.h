// Transfers between stages on different ranks: shapes learnt once, receives posted early, sends waited for
// late.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/model/unit.h"

namespace heddle::train {

// A buffer is free once only the tensor kept here shares its storage: receivers and autograd need not return
// it.
class Buffers {
 public:
  // Keeps at most `most` buffers; 0: none is kept.
  explicit Buffers(size_t most) : most_(most) {}

  at::Tensor take(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device);

 private:
  size_t most_;
  std::vector<at::Tensor> kept_;
};

// One tensor that a stage sends to the next, and whether its gradient comes back.
struct Piece {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  bool defined = true, gradient = false;
};
using Pieces = std::vector<Piece>;

// Tensors in flight to this rank.
struct Arriving {
  Tensors tensors;
  std::vector<std::unique_ptr<Work>> works;  // one for each defined tensor
};

// Transfers over the communicator of the axis pp. What a stage gives depends on the shape of its batch alone:
// the first time that a shape is seen on an edge (between a stage and the next) a header goes ahead of it.
class HEDDLE_API Wires {
 public:
  // Returns the outputs of another rank's stage for these inputs, of the shapes chosen last.
  using Elsewhere = std::function<Tensors(int stage, Tensors inputs)>;

  // `wire`: the dtype of floating tensors on their way; empty: their own. `elsewhere`: in a dry world, where
  // no header arrives, it tells what one would say; else empty.
  Wires(Communicator* ranks, int stages, std::optional<at::ScalarType> wire, Buffers buffers,
        c10::Device device, Elsewhere elsewhere = {});

  // The following transfers belong to batches of this shape; `key` identifies everything that shapes depend
  // on.
  void choose_shape(const std::vector<int64_t>& key);

  // Throws Error{internal} if the shapes of an edge change while those of the batch do not.
  void send_forward(Tensors tensors, int edge, int peer, int tag);
  void send_backward(Tensors gradients, int peer, int tag);
  Arriving receive_forward(int edge, int peer, int tag);
  Arriving receive_backward(int edge, int peer, int tag);

  // Waits; the tensors have their original dtype, and require gradients if the sender's did.
  Tensors take_forward(Arriving arriving, int edge);
  Tensors take_backward(Arriving arriving, int edge);

  // Waits until every send is done.
  void settle();

 private:
  struct Known {
    std::vector<int64_t> key;
    std::vector<std::optional<Pieces>> edges;
  };
  struct Sent {
    std::unique_ptr<Work> work;
    at::Tensor tensor;
  };
  std::optional<Pieces>& pieces(int edge) { return shape_->edges[edge]; }
  at::ScalarType on_wire(at::ScalarType dtype) const;
  void send(at::Tensor tensor, int peer, int tag);
  void send_header(const Pieces& pieces, int edge, int peer);
  Pieces receive_header(int edge, int peer);
  Pieces header_from_elsewhere(int edge, int peer);
  void add(Arriving& arriving, const Piece& piece, int peer, int tag);
  void release();

  Communicator* ranks_;
  int stages_;
  std::optional<at::ScalarType> wire_;
  Buffers buffers_;
  c10::Device device_;  // where what arrives is put
  Elsewhere elsewhere_;
  std::deque<Known> known_;  // the oldest is forgotten first, on every rank alike
  Known* shape_ = nullptr;
  std::deque<Sent> sent_;
};

}  // namespace heddle::train
