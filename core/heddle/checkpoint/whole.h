// Whole parameters from the shards of all ranks, one at a time: what an export and a comparison need.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/box.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/parallel/build.h"

namespace heddle::checkpoint {

// Who holds which boxes of every parameter. Of replicas of a box, the one of the lowest rank is sent.
class HEDDLE_API WholeParameters {
 public:
  // A meeting of all ranks of the mesh; `key` is used once in a run. The shards keep their place while this
  // lives. Throws Error{internal} when the boxes of a parameter do not make it whole.
  WholeParameters(Stages& stages, const DeviceMesh& mesh, const std::string& key);

  // Every parameter of the model, a tied one once, in the order of the ranks and of their units; the same on
  // all ranks.
  const std::vector<TensorToWrite>& tensors() const { return tensors_; }

  // Called by every rank with the same index. Rank 0 of the world gets the whole parameter (CPU, contiguous);
  // the others send their boxes and get an undefined tensor. Only one parameter is whole at a time.
  at::Tensor gather(size_t index);

 private:
  struct Part {
    int rank = 0;
    Box box;
  };
  using Own = std::vector<std::pair<Box, at::Tensor>>;

  void read_rank(int rank, const std::string& lines);
  void check_cover(size_t index) const;
  const at::Tensor& own(size_t index, const Box& box) const;

  Communicator* world_;
  std::vector<TensorToWrite> tensors_;
  std::vector<std::vector<Part>> parts_;  // of each parameter
  std::vector<Own> own_;                  // this rank's boxes of each parameter
};

}  // namespace heddle::checkpoint
