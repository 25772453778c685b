// Whether figures of time are compared: they hold on a machine that does nothing else.
#pragma once

#include <cstdlib>

namespace heddle::tests {

// HEDDLE_TEST_QUIET=1, as `scripts/test --quiet` sets it.
inline bool machine_is_quiet() {
  const char* value = std::getenv("HEDDLE_TEST_QUIET");
  return value != nullptr && *value == '1';
}

}  // namespace heddle::tests
