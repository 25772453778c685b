// What all ranks write together: every tensor once, in boxes, each on one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/checkpoint/manifest.h"

namespace heddle::checkpoint {

// This rank's box of a named tensor: along dim d it holds [offset[d], offset[d] + tensor.size(d)). A rank may
// hold several boxes of one name, and several ranks the same box.
struct Part {
  std::string name;
  at::Tensor tensor;           // on any device
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> offset;
};

// A box of the plan: `box` lies in `held`, the box that its ranks hold, and differs from it along dim 0 only.
struct PlannedBox {
  std::string name;
  Box box, held;
  int rank = 0;
  std::string key;  // of the box in its file: the name, and "#1" behind it for the second of that name
};

struct WritePlan {
  std::map<std::string, SavedTensor> tensors;  // without boxes
  std::vector<PlannedBox> boxes;               // in the order in which they stand in the files
};

// The boxes of one rank that hold something, without their numbers; some 40 bytes a tensor.
HEDDLE_API std::string describe(std::span<const Part> parts);

// The plan from what each rank described. Throws Error{internal} where the ranks do not agree about a tensor,
// and where the boxes do not make it whole.
HEDDLE_API WritePlan plan_writing(std::span<const std::string> ranks);

}  // namespace heddle::checkpoint
