// The signals that a run can be asked to end with, and their names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle {

// "SIGTERM", "term": the number; empty for what is no signal or cannot be asked for (SIGKILL, SIGSEGV, ...).
std::optional<int> signal_of(std::string_view name);

// "SIGTERM"; "signal 99" for one that is not among them.
std::string signal_name(int64_t number);

// The names of all that can be asked for.
std::vector<std::string> signal_names();

// The signals that save a checkpoint and end a run.
struct StopSignals {
  std::vector<int> numbers;  // empty: none
};

// A name, a number, a list of names and numbers, or null.
template <>
struct FieldType<StopSignals> {
  static std::string type_name();
  static StopSignals read(const Node& value);
  static Node write(const StopSignals& value);
};

}  // namespace heddle
