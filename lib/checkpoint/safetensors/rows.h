// Tensors in files, split over ranks as ranges of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle::checkpoint {

struct Rows {
  size_t file, tensor;   // places in the lists
  int64_t first, count;  // along dim 0; a scalar is one row
  uint64_t position;     // offset after the header of the file, in which tensors are adjacent
  bool operator==(const Rows&) const = default;
};

// The share of one of `ranks`: neighbouring rows, equal in bytes up to one range. A range has at most `most`
// bytes, or one row.
HEDDLE_API std::vector<Rows> deal_rows(std::span<const std::vector<TensorToWrite>> files, uint64_t most,
                                       int rank, int ranks);

}  // namespace heddle::checkpoint
