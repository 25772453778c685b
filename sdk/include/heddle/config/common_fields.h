// Field types that several plugins share: mixed precision, the scope of checkpointing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/config/schema.h"

namespace heddle {

// PyTorch's MixedPrecisionPolicy. A dtype without a word (null) means: no cast. A map that is given starts
// from nothing: what it does not name is null, and inputs are not cast.
struct MixedPrecision {
  DTypeWord param_dtype, reduce_dtype, output_dtype;
  bool cast_forward_inputs = false;
  bool operator==(const MixedPrecision&) const = default;
};

template <>
struct HEDDLE_API FieldType<MixedPrecision> {
  static std::string type_name() { return "map"; }
  static MixedPrecision read(const Node& value);  // a `_target_` must end in MixedPrecisionPolicy
  static Node write(const MixedPrecision& value);
};

// The groups of layers that activation checkpointing wraps: {"all"}, or some of language, vision, audio and
// multimodal. Written as a list, or as one word with `,` or `+` between.
struct CheckpointingScope {
  std::vector<std::string> groups = {"all"};
  // For a model of text alone these say the same.
  bool all_or_language() const {
    return groups.size() == 1 && (groups[0] == "all" || groups[0] == "language");
  }
};

template <>
struct HEDDLE_API FieldType<CheckpointingScope> {
  static std::string type_name() { return "word or list of words"; }
  static CheckpointingScope read(const Node& value);
  static Node write(const CheckpointingScope& value);
};

// What is wrong with a dtype for autocast; empty: nothing.
HEDDLE_API std::string autocast_complaint(const DTypeWord& dtype);

}  // namespace heddle

// Names of code in a configuration.

namespace heddle::config {

// The known name that a dotted one ends in: "torch.optim.AdamW" and "optim.py:AdamW" are AdamW. Throws
// Error{config} that names what there is.
HEDDLE_API std::string component_of(const Node& dotted, std::span<const std::string> known);

}  // namespace heddle::config
