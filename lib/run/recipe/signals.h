// The signals that a run can be asked to end with, and their names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// "SIGTERM", "term": the number; empty for what is no signal or cannot be asked for (SIGKILL, SIGSEGV, ...).
std::optional<int> signal_of(std::string_view name);

// "SIGTERM"; "signal 99" for one that is not among them.
std::string signal_name(int64_t number);

// The names of all that can be asked for.
std::vector<std::string> signal_names();

}  // namespace heddle
