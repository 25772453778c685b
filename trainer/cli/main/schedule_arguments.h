// CLI11 options of `heddle schedule` and of traces, and parsing of sizes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Adds the trace options of `heddle train`.
void add_trace(CLI::App& command, TrainCommand& to);

void add_schedule(CLI::App& app, ScheduleCommand& to);

// Checks the options against each other and returns them. Throws Error{usage}.
ScheduleCommand checked_schedule(ScheduleCommand asked);

// Replaces a size such as "5GB" or "800MiB" by its bytes; returns an error message for an invalid size.
std::string read_size(std::string& word);

}  // namespace heddle::cli
