// Which tensors of a Hugging Face directory a model's parameters make, where they are not those of their
// names.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/family.h"

namespace heddle::checkpoint {

// What one parameter gives to a tensor.
struct HfPiece {
  std::string parameter;
  std::vector<int64_t> shape;  // of the parameter
  StoredPart part;
};

// The pieces of each tensor, by its name. A parameter that is a tensor of the files as it is has none.
using HfLayout = std::map<std::string, std::vector<HfPiece>>;

// Adds a parameter; false where it is a tensor of the files as it is.
HEDDLE_API bool add_to(HfLayout& layout, const ModelSpec& model, const std::string& parameter,
                       std::span<const int64_t> shape);

// Of all parameters of a model.
HEDDLE_API HfLayout layout_of(const ModelSpec& model);

// The place of each parameter in the model, from 0.
HEDDLE_API std::map<std::string, size_t> order_of(const ModelSpec& model);

// Throws Error{internal} where the pieces do not make a tensor whole.
HEDDLE_API void check_whole(const HfLayout& layout);

}  // namespace heddle::checkpoint
