// This rank's part of one parameter: what the optimizer, the norm, initialisation and files see.
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

// What a parallelizer did to a parameter on a mesh axis: split it along tensor dim `dim` (uneven splits
// allowed), or left it whole with gradients that are this rank's part of a sum over the axis.
struct Placed {
  enum class Kind { split, partial_gradient };
  std::string parameter, axis;
  int64_t dim = 0;
  int64_t offset = 0, whole = 0;  // this rank's first index along dim, and the size of the whole dim
  Kind kind = Kind::split;
};

// A box of the whole parameter: along dim d it holds [offset[d], offset[d] + tensor.size(d)).
struct Shard {
  std::string name;
  at::Tensor tensor;  // updated by the optimizer where it requires_grad; its grad() is the step's, final
  std::vector<int64_t> shape;   // of the whole parameter
  std::vector<int64_t> offset;  // of this box in it
  // Mesh axes that split it: its norm is summed over exactly these. They are in one view of the mesh.
  std::vector<std::string> axes;
  Init init;
  // Mesh axes over which its gradient is summed once a step, after the strategy's own sums: core does it in
  // finish_gradients() of the built stage. They are in the same view.
  std::vector<std::string> partial;
  // Mesh axes along which ranks hold other values of this box until the strategy makes them equal again
  // (local SGD). The gradient norm is the root of the mean over these ranks. Checkpoints keep the parameter
  // and its optimizer state of each rank, and are read by as many ranks alone; the model in them, and what is
  // exported, is the mean. Empty: ranks that hold the box hold the same values.
  std::vector<std::string> differs = {};
  // An earlier stage of the pipeline holds the parameter too: it is counted there, in norms, sizes and files.
  // Set by parallel::build.
  bool tied_to_earlier = false;
};

// One tensor of the state that checkpoints keep beside parameters: of an optimizer, or of a stage.
struct StateTensor {
  // Of an optimizer "exp_avg": no dot, and not "master", which Step adds. Of a stage a name that no other
  // stage of the pipeline has, unless the tensor is the same: "residual.model.layers.0.mlp.up_proj.weight".
  std::string name;
  at::Tensor tensor;  // the owner's storage: what is written into it is used from then on
  // The box that it covers of a whole tensor of `shape`, as a Shard does. Both empty: a number that every
  // rank has alike; of an optimizer every rank with a part of the parameter.
  std::vector<int64_t> shape, offset;
};

// A tensor of the shard's sizes that covers the same box.
HEDDLE_API StateTensor box_state(const Shard& shard, std::string name, at::Tensor tensor);
// A number, the same on every rank that has it: a tensor of no dims.
HEDDLE_API StateTensor number_state(std::string name, at::Tensor tensor);
// `state` as one of the ranks along the axes has it, which hold other values each: a box of a tensor whose
// first dim is these ranks. A checkpoint of it is read by as many ranks alone.
HEDDLE_API StateTensor rank_state(const DeviceMesh& mesh, std::span<const std::string> axes,
                                  StateTensor state);

// Writes the values of one shard (its box of the whole parameter) into shard.tensor; false if it does not
// have the parameter. Reads only that box of the file.
using ParameterSource = std::function<bool(const Shard& shard)>;

// The shard of a slot's whole tensor: the part of the parameter that the parallelizers left. `tensor` is not
// set. Throws Error{config} if two of them split one dim.
HEDDLE_API Shard whole_shard(const ParameterSlot& slot, std::span<const Placed> placed);

}  // namespace heddle

// Frees and reallocates the storage of parameters, on any device.

namespace heddle::parallel {

// Gives the storage of `alias` and all its views `bytes` uninitialised bytes; 0 frees it. Sizes and strides
// stay, as in FSDP2: views read the new bytes once they are filled. The memory comes from the device's
// allocator, so on a device it is freed and allocated in the order of the current stream.
HEDDLE_API void resize_storage(const at::Tensor& alias, size_t bytes);

// Gives slots on meta uninitialised storage on `device`: those of one dtype are adjacent in one buffer, each
// aligned to 64 bytes of 4-byte elements, so that layers of one input can be computed as one. Other slots are
// not changed.
HEDDLE_API void lay_flat(std::span<ParameterSlot* const> slots, c10::Device device);

}  // namespace heddle::parallel
