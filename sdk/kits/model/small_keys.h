// Keys of models that are small enough to train in milliseconds, derived from the defaults.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/plugin/offer.h"

namespace heddle::kits {

// Reads a model of a family as from a config.json. Throws Error.
std::unique_ptr<ModelSpec> read_model(const OfferedModel& offered, const Node& keys);

// Returns `keys` (with model_type) and, for each size of the table above 16, the first small value that the
// family accepts together with the other keys. tables: the keys of the family, then the keys that only other
// families of the file have. If the defaults are refused, keys whose range is a single other value get that
// value, dropout becomes 0, and one missing key is set. Throws NotRun if the family refuses the result.
Node small_keys(const OfferedModel& offered, const std::vector<FieldInfo>& tables, const Node& keys);

// Returns the value of the key, or its default; null if it is absent and has no default.
Node value_of(const FieldInfo& field, const Node& keys);

// Returns values other than `now` that the field may have, by its type and range.
std::vector<Node> other_values(const FieldInfo& field, const Node& now);

}  // namespace heddle::kits
