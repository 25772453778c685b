// The header of a safetensors file: an 8-byte length, then JSON that says where each tensor's bytes lie.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "heddle/checkpoint/safetensors.h"

namespace heddle::checkpoint {

struct Header {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;  // the texts of __metadata__
  uint64_t data = 0;                            // where the tensors' bytes begin in the file
};

// Checks and reads the header of a whole file's bytes. Throws Error{input} naming the file, and the tensor
// where one is at fault: a cut file, broken JSON, a name given twice, an unknown dtype, a shape and a number
// of bytes that do not fit, bytes outside the file, overlaps and holes.
Header read_header(std::string_view bytes, const std::string& file);

}  // namespace heddle::checkpoint
