// Which fault a plugin of this folder has: the environment's HEDDLE_FAULT, read where it acts.
#pragma once

#include <cstdlib>
#include <string>

namespace faults {

inline bool is(const char* fault) {
  const char* given = std::getenv("HEDDLE_FAULT");
  return given != nullptr && std::string(given) == fault;
}

}  // namespace faults
