// What an action throws, as a person would see it.
#pragma once

#include <functional>
#include <string>

#include "heddle/base/error.h"

namespace heddle::tests {

// The block of the error that the action throws; "" when it throws none.
inline std::string thrown_by(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace heddle::tests
