// The options of `heddle schedule`, those for traces, and sizes in words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "trainer/cli/commands.h"

namespace heddle::cli {

// The options of `heddle train` for a trace.
void add_trace(CLI::App& command, TrainCommand& to);

void add_schedule(CLI::App& app, ScheduleCommand& to);

// The values of the options, checked together. Throws Error{usage}.
ScheduleCommand checked_schedule(ScheduleCommand asked);

// "5GB" and "800MiB" become bytes; returns what is wrong with the word.
std::string read_size(std::string& word);

}  // namespace heddle::cli
