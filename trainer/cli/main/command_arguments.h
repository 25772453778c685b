// CLI11 options of `heddle plugins`.
#pragma once

#include <CLI/App.hpp>
#include <CLI/CLI.hpp>
#include <string>

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns a check that a number is in this range. Unlike CLI::Range it refuses NaN.
CLI::Validator in_range(double least, double most);

// Adds the trace options of `heddle train`.
void add_trace(CLI::App& command, TrainCommand& to);

void add_schedule(CLI::App& app, ScheduleCommand& to);

// Checks the options against each other and returns them. Throws Error{usage}.
ScheduleCommand checked_schedule(ScheduleCommand asked);

// Replaces a size such as "5GB" or "800MiB" by its bytes; returns an error message for an invalid size.
std::string read_size(std::string& word);

void add_data(CLI::App& app, DataCommand& to);
void add_show(CLI::App& app, ShowCommand& to);
void add_generate(CLI::App& app, GenerateCommand& to);

}  // namespace heddle::cli

namespace CLI {
class App;
}

namespace heddle::cli {

// Adds the command and its subcommands, which write into `to` and `json`.
void add_plugins(CLI::App& app, PluginsCommand& to, bool& json);

}  // namespace heddle::cli
