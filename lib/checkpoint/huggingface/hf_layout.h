// Maps a model's parameters to the tensors of a Hugging Face directory, where they differ.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/model/family.h"

namespace heddle::checkpoint {

// The part of a tensor that comes from one parameter.
struct HfPiece {
  std::string parameter;
  std::vector<int64_t> shape;  // of the parameter
  StoredPart part;
};

// The pieces of each tensor, by its name. A parameter that equals its tensor has none.
using HfLayout = std::map<std::string, std::vector<HfPiece>>;

// Adds a parameter; false if it equals its tensor in the files.
HEDDLE_API bool add_to(HfLayout& layout, const ModelSpec& model, const std::string& parameter,
                       std::span<const int64_t> shape);

// Returns the tensors of files for all parameters of a model.
HEDDLE_API HfLayout layout_of(const ModelSpec& model);

struct InModel {
  size_t index = 0;        // from 0, in the order of the model
  bool own_dtype = false;  // it keeps its dtype under any precision (ParameterSlot::compute)
};
// Returns the place in the model of each parameter.
HEDDLE_API std::map<std::string, InModel> places_of(const ModelSpec& model);

// Throws Error{plugin_failed} if two pieces of a tensor overlap; layout_of() does for a tensor that is a
// parameter itself.
HEDDLE_API void check_overlaps(const HfLayout& layout);

// Throws Error{internal} if pieces of a tensor are missing, Error{plugin_failed} if two overlap.
HEDDLE_API void check_whole(const HfLayout& layout);

}  // namespace heddle::checkpoint
