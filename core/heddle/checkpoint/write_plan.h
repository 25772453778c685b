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
  size_t part = 0;  // which of those that the rank described
  int again = 0;    // how many boxes of this name stand before it in the rank's file
};

// What a rank writes: rows of one of the boxes that it described, or all of it.
struct WriteShare {
  size_t part = 0;
  int64_t first_row = 0, rows = kAll;
  int again = 0;

  static constexpr int64_t kAll = -1;
};

// The name of a box in its file: that of its tensor, and "#1" behind it for the second of that name.
std::string key_of(const std::string& tensor, int again);

struct WritePlan {
  std::map<std::string, SavedTensor> tensors;  // without boxes
  std::vector<PlannedBox> boxes;               // in the order in which they stand in the files
};

// The boxes of one rank that hold something, in the order of `parts`, without their numbers; some 40 bytes a
// tensor.
HEDDLE_API std::string describe(std::span<const Part> parts);

// The plan from what each rank described. Throws Error{internal} where the ranks do not agree about a tensor,
// and where the boxes do not make it whole.
HEDDLE_API WritePlan plan_writing(std::span<const std::string> ranks);

// What each rank is told of it: its shares, in the order of its file; some 10 bytes a box.
HEDDLE_API std::vector<std::string> shares(const WritePlan& plan, int world_size);
HEDDLE_API std::vector<WriteShare> read_shares(const std::string& told);

}  // namespace heddle::checkpoint
