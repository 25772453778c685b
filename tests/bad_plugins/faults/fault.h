// Selects the fault of a plugin in this folder by the environment variable HEDDLE_FAULT.
#pragma once

#include <cstdlib>
#include <string>

namespace faults {

inline bool is(const char* fault) {
  const char* given = std::getenv("HEDDLE_FAULT");
  return given != nullptr && std::string(given) == fault;
}

}  // namespace faults
