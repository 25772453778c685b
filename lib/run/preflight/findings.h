// Errors and warnings that the steps of preflight collect.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle {

// Machine that the run is meant for. If it is another one, a model, data or a device that this machine lacks
// is a warning, not an error.
enum class Machine { this_one, another };

struct Findings {
  Errors errors;  // thrown together at the end of preflight
  std::vector<std::string> warnings;
  Machine machine = Machine::this_one;

  bool is_for_another_machine() const { return machine == Machine::another; }

  // Returns the result of `work`; empty if it throws an Error, which is recorded.
  template <class Work>
  std::optional<std::invoke_result_t<Work>> attempt(const Work& work) {
    std::optional<std::invoke_result_t<Work>> out;
    errors.attempt([&] { out.emplace(work()); });
    return out;
  }

  void warn(std::string text) {
    if (!text.empty()) warnings.push_back(std::move(text));
  }
  // Warns of a file that the other machine must have, once per text even if several sections name it.
  void warn_missing(const std::string& finding) {
    const std::string text = "on this machine " + finding;
    if (std::find(warnings.begin(), warnings.end(), text) == warnings.end()) warnings.push_back(text);
  }
};

}  // namespace heddle
