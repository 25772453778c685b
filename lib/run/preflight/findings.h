// What the links of preflight find beside their values: errors and warnings.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle {

// Where the run will be: for another machine, a model, data or a device that this one lacks is a
// warning.
enum class Machine { this_one, another };

struct Findings {
  Errors errors;  // thrown together, at the end of the chain
  std::vector<std::string> warnings;
  Machine machine = Machine::this_one;

  bool is_elsewhere() const { return machine == Machine::another; }

  // The next value of the chain; empty where it cannot be made, and its error is kept.
  template <class Work>
  std::optional<std::invoke_result_t<Work>> attempt(const Work& work) {
    std::optional<std::invoke_result_t<Work>> out;
    errors.attempt([&] { out.emplace(work()); });
    return out;
  }

  void warn(std::string text) {
    if (!text.empty()) warnings.push_back(std::move(text));
  }
  // Of what another machine must have; once, also where several sections name it.
  void warn_missing(const std::string& what) {
    const std::string text = "on this machine " + what;
    if (std::find(warnings.begin(), warnings.end(), text) == warnings.end()) warnings.push_back(text);
  }
};

}  // namespace heddle
