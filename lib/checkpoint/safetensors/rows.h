// Tensors in files, dealt over ranks as stretches of rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle::checkpoint {

struct Rows {
  size_t file, tensor;   // places in the lists
  int64_t first, count;  // along dim 0; a number without dims is one row
  uint64_t at;           // byte after the header of the file, where tensors lie one behind the other
  bool operator==(const Rows&) const = default;
};

// What one of `ranks` takes: neighbouring rows, as many bytes as the others' up to one stretch. A stretch
// holds at most `most` bytes, or one row.
HEDDLE_API std::vector<Rows> deal_rows(std::span<const std::vector<TensorToWrite>> files, uint64_t most,
                                       int rank, int ranks);

}  // namespace heddle::checkpoint
