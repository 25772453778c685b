// What a family does with its keys: each changes something, and config_json() keeps it.
#pragma once

#include <string>
#include <vector>

#include "families.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// An unknown key is an error for UnknownKeys::refused, and only then.
std::string refuses_unknown_keys(const OfferedModel& offered, const Node& keys);
// config_json() has a model_type that the file offers, and read() of it is the same model, in the dtype that
// was asked for.
std::string reads_what_it_writes(const Families& families, const OfferedModel& offered, const Node& keys);
// Another value of a key that changes names or sizes of parameters changes signature().
std::string changes_its_signature(const OfferedModel& offered, const Node& keys);
// Every key of the table with another value than the one in force: facts, parameters or numbers of the model
// of one of the types change (`keys`: of each type), and config_json() keeps the change. Left out are keys
// whose help says that they change nothing. The default in the table is what read() takes.
std::string acts_on_each_key(const Families& families, const OfferedModel& offered,
                             const std::vector<Node>& keys);
// Two models of the same keys are one: names, sizes, values drawn from the generator.
std::string makes_the_same_twice(const OfferedModel& offered, const Node& keys);

}  // namespace heddle::kits
