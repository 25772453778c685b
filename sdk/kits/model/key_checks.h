// What a family does with its keys: each changes something, and config_json() keeps it.
#pragma once

#include <string>
#include <vector>

#include "heddle/plugin/offer.h"

namespace heddle::kits {

// An unknown key is an error for UnknownKeys::refused, and only then.
std::string refuses_unknown_keys(const OfferedModel& offered, const Node& keys);
// read() of config_json() is the same model, in the dtype that was asked for.
std::string reads_what_it_writes(const OfferedModel& offered, const Node& keys);
// Every key of the table with another value than the one in force: facts, parameters or numbers of the model
// of one of the types change (`keys`: of each type), and config_json() keeps the change. Left out are keys
// whose help says that they change nothing. The default in the table is what read() takes.
std::string acts_on_each_key(const OfferedModel& offered, const std::vector<Node>& keys);
// Two models of the same keys are one: names, sizes, values drawn from the generator.
std::string makes_the_same_twice(const OfferedModel& offered, const Node& keys);

}  // namespace heddle::kits
