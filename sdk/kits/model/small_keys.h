// The keys of a model that is small enough to be trained in milliseconds, from those of its defaults.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/plugin/offer.h"

namespace heddle::kits {

// Reads a family's models as a config.json. Throws Error.
std::unique_ptr<ModelSpec> read_model(const OfferedModel& offered, const Node& keys);

// `keys` (with model_type) and, for each size of the table above 16 (of `tables`: those of all models of the
// file, which may share keys), the first small value that the family
// accepts together with the others. Where the defaults are refused, keys whose range is one other value get
// that, dropout is 0, and one key that must be given is. Throws NotRun if the family refuses what is left.
Node small_keys(const OfferedModel& offered, const std::vector<FieldInfo>& tables, const Node& keys);

// The key's value in force; null: it is absent and its default is none.
Node value_of(const FieldInfo& field, const Node& keys);

// Other values than `now` that the field may have, by its type and range.
std::vector<Node> other_values(const FieldInfo& field, const Node& now);

}  // namespace heddle::kits
