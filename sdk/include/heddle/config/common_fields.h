// Field types that several plugins share: mixed precision, and the scope of activation checkpointing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/config/schema.h"

namespace heddle {

// PyTorch's MixedPrecisionPolicy. A null dtype means no cast. In a map that is given, absent dtypes are null
// and inputs are not cast.
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

// The layer groups that activation checkpointing wraps: {"all"}, or some of language, vision, audio and
// multimodal. In YAML, a list or one string separated by `,` or `+`.
struct CheckpointingScope {
  std::vector<std::string> groups = {"all"};
  // In a text model "all" and "language" are equal.
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

// Returns the error message for a dtype that autocast does not support, or "".
HEDDLE_API std::string autocast_complaint(const DTypeWord& dtype);

}  // namespace heddle

// Dotted names of code in a configuration.

namespace heddle::config {

// Returns the known name at the end of a dotted name: AdamW for "torch.optim.AdamW" and "optim.py:AdamW".
// Throws Error{config}, which lists the known names.
HEDDLE_API std::string component_of(const Node& dotted, std::span<const std::string> known);

}  // namespace heddle::config
