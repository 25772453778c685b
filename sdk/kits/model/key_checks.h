// Checks of a family's keys: each key affects the model, and config_json() keeps it.
#pragma once

#include <string>
#include <vector>

#include "families.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// Checks that an unknown key is an error for UnknownKeys::refused only.
std::string refuses_unknown_keys(const OfferedModel& offered, const Node& keys);
// Checks that config_json() has a model_type that the file offers, and that read() returns the same model in
// the requested dtype.
std::string reads_what_it_writes(const Families& families, const OfferedModel& offered, const Node& keys);
// Checks that a value of a key (of any family of the file) that changes names or sizes of parameters also
// changes signature().
std::string changes_its_signature(const Families& families, const OfferedModel& offered, const Node& keys);
// Checks that every key of the table with another value affects facts, parameters or results of a model of
// some type, that config_json() keeps the change, and that read() uses the default of the table. keys: of
// each type. Skips keys whose help says that they have no effect.
std::string acts_on_each_key(const Families& families, const OfferedModel& offered,
                             const std::vector<Node>& keys);
// Checks that two models with the same keys are equal in names, sizes and values drawn from the generator.
std::string makes_the_same_twice(const OfferedModel& offered, const Node& keys);

}  // namespace heddle::kits
