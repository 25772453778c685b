// Runs one kit as one line of the report, whatever it throws.
#pragma once

#include <functional>
#include <string>

#include "heddle/testing/conformance.h"

namespace heddle::kits {

// Thrown by a kit that does not apply: not a failure.
struct NotRun {
  std::string why;
};

// Adds checks to a report, and tells the listener before and after each.
class Attempts {
 public:
  Attempts(const KitOptions& options, Report& report) : options_(options), report_(report) {}
  // Runs one kit, which returns its observation. True unless it failed.
  bool operator()(const std::string& rule, const std::function<std::string()>& kit);

 private:
  const KitOptions& options_;
  Report& report_;
};

}  // namespace heddle::kits
