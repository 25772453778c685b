// Names and numbers of the signals that can stop a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle {

// Returns the number of a signal such as "SIGTERM" or "term"; empty for an unknown signal and one that cannot
// stop a run (SIGKILL, SIGSEGV, ...).
std::optional<int> signal_of(std::string_view name);

// Returns "SIGTERM", or "signal 99" for a number without a name.
std::string signal_name(int64_t number);

// Returns the names of all signals that can stop a run.
std::vector<std::string> signal_names();

// Signals that save a checkpoint and stop a run.
struct StopSignals {
  std::vector<int> numbers;  // empty: none
};

// Reads a name, a number, a list of names and numbers, or null.
template <>
struct FieldType<StopSignals> {
  static std::string type_name();
  static StopSignals read(const Node& value);
  static Node write(const StopSignals& value);
};

}  // namespace heddle
