// Tells whether the machine is idle, so that tests may compare wall-clock times.
#pragma once

#include <cstdlib>

namespace heddle::tests {

// Returns true if HEDDLE_TEST_QUIET=1, which `scripts/test --quiet` sets.
inline bool machine_is_quiet() {
  const char* value = std::getenv("HEDDLE_TEST_QUIET");
  return value != nullptr && *value == '1';
}

}  // namespace heddle::tests
