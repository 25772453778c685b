// Captures the error that an action throws.
#pragma once

#include <functional>
#include <string>

#include "heddle/base/error.h"

namespace heddle::tests {

// Returns the printed form of the Error that `act` throws, or "" if it throws none.
inline std::string thrown_by(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace heddle::tests
