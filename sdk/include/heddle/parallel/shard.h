// Shard, this rank's part of a parameter, as the optimizer, the norm, initialization and checkpoints use it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/slot.h"

namespace heddle {

class DeviceMesh;

// The effect of a parallelizer on a parameter along a mesh axis. split: the parameter is split along tensor
// dim `dim`, possibly unevenly. partial_gradient: the parameter is whole, and its gradient is this rank's
// term of a sum over the axis.
struct Placed {
  enum class Kind { split, partial_gradient };
  std::string parameter, axis;
  int64_t dim = 0;
  int64_t offset = 0, whole = 0;  // this rank's first index along dim, and the size of the whole dim
  Kind kind = Kind::split;
};

// A box of a parameter: [offset[d], offset[d] + tensor.size(d)) along each dim d.
struct Shard {
  std::string name;
  // Updated by the optimizer if it requires_grad; grad() is the final gradient of the step.
  at::Tensor tensor;
  std::vector<int64_t> shape;   // shape of the whole parameter
  std::vector<int64_t> offset;  // offset of this box in the whole parameter
  // Mesh axes that split the parameter. The norm is summed over exactly these axes. All are in one view of
  // the mesh.
  std::vector<std::string> axes;
  Init init;
  // Mesh axes over which core sums the gradient once per step, in finish_gradients() of the built stage after
  // the strategy's own sums. They are in the same view.
  std::vector<std::string> partial;
  // Mesh axes along which the values of this box differ between ranks until the strategy synchronizes them
  // (local SGD). The gradient norm is the root of the mean of squares over these ranks. Checkpoints contain
  // the parameter and its optimizer state of each rank, and only the same number of ranks can resume from
  // them; the model in a checkpoint and in an export is the mean. Empty: the values are equal.
  std::vector<std::string> differs = {};
  // Whether an earlier pipeline stage also has the parameter, so that norms, sizes and files count it there.
  // Set by parallel::build().
  bool tied_to_earlier = false;
};

// One tensor of the state of an optimizer or of a stage, which checkpoints contain besides parameters.
struct StateTensor {
  // For an optimizer: "exp_avg", stored as NAME.PARAMETER; without a dot, and not "master", which Step adds.
  // For a stage: "residual.model.layers.0.mlp.up_proj.weight", stored as STRATEGY.NAME; two stages of a
  // pipeline use the same name only for the same tensor.
  std::string name;
  at::Tensor tensor;  // the owner's own storage; values written to it are used by the next step
  // The box of the tensor in a whole tensor of `shape`, as in Shard. Both are empty for a scalar that is
  // equal on every rank (for an optimizer: every rank with a part of the parameter).
  std::vector<int64_t> shape, offset;
};

// Returns a state tensor with the sizes and the box of the shard.
HEDDLE_API StateTensor box_state(const Shard& shard, std::string name, at::Tensor tensor);
// Returns a scalar that is equal on every rank that has it: a tensor without dims.
HEDDLE_API StateTensor number_state(std::string name, at::Tensor tensor);
// Returns `state` as this rank's box of a tensor whose first dim is the ranks along `axes`, for state that
// differs between these ranks. Only the same number of ranks can read it from a checkpoint.
HEDDLE_API StateTensor rank_state(const DeviceMesh& mesh, std::span<const std::string> axes,
                                  StateTensor state);

// Writes the values of a shard, its box of the whole parameter, to shard.tensor. Returns false if the source
// does not have the parameter. Reads only this box of a file.
using ParameterSource = std::function<bool(const Shard& shard)>;

// Returns the shard of a slot's whole tensor, the part of the parameter that the parallelizers left. `tensor`
// is undefined. Throws Error{config} if two parallelizers split the same dim.
HEDDLE_API Shard whole_shard(const ParameterSlot& slot, std::span<const Placed> placed);

}  // namespace heddle

// Storage of parameters: resizing and flat allocation, on any device.

namespace heddle::parallel {

// Resizes the storage of `alias` and its views to `bytes` uninitialized bytes; 0 frees it. Sizes and strides
// are unchanged, so views are valid again once the storage is filled, as in FSDP2. The memory comes from the
// device's allocator, which frees and allocates in the order of the current stream.
HEDDLE_API void resize_storage(const at::Tensor& alias, size_t bytes);

// Allocates uninitialized storage on `device` for slots on meta. Slots of equal dtype are adjacent in one
// buffer, each aligned to 64 bytes of 4-byte elements, so that layers with one input can be computed
// together. Other slots are unchanged.
HEDDLE_API void lay_flat(std::span<ParameterSlot* const> slots, c10::Device device);

}  // namespace heddle::parallel
