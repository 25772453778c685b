// Field types that several plugins share: mixed precision, the scope of checkpointing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/config/schema.h"

namespace heddle {

// PyTorch's MixedPrecisionPolicy. A dtype that is null means: no cast. A given map starts from null: what it
// does not name is null, and inputs are not cast.
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
// multimodal. Written as a list, or as one string separated by `,` or `+`.
struct CheckpointingScope {
  std::vector<std::string> groups = {"all"};
  // For a text model both mean everything.
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

// The error about a dtype for autocast; empty: none.
HEDDLE_API std::string autocast_complaint(const DTypeWord& dtype);

}  // namespace heddle

// Names of code in a configuration.

namespace heddle::config {

// The known name at the end of a dotted one: "torch.optim.AdamW" and "optim.py:AdamW" are AdamW. Throws
// Error{config} that lists the known names.
HEDDLE_API std::string component_of(const Node& dotted, std::span<const std::string> known);

}  // namespace heddle::config
