// Table of the program's commands and options, built from their CLI11 declarations.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace heddle::cli {

// Kind of a value, for completion.
enum class ValueKind { none, text, file, directory, command, choice };

struct OptionRow {
  std::vector<std::string> names;  // "-h", "--help"; one name without dashes for a positional argument
  std::string value;               // placeholder of the value in help, such as FILE; empty for a flag
  std::string help;
  ValueKind kind = ValueKind::none;
  std::vector<std::string> choices;  // all values if kind is choice
  bool is_required = false;
  bool is_list = false;  // may be given several times, or takes several words
};

struct CommandRow {
  std::string name;  // "train", "plugins list"
  std::string help, footer;
  std::vector<OptionRow> arguments, options;
  std::vector<std::string> below;  // names of its subcommands, such as list and inspect
  bool takes_overrides = false;    // --SECTION.KEY VALUE
};

struct CommandTable {
  std::string about;
  std::vector<OptionRow> options;    // options of the program itself
  std::vector<CommandRow> commands;  // each before its subcommands
};

// Returns the table of all declarations in `app`. A command whose footer is `overrides` takes overrides of
// the configuration.
CommandTable read_table(const CLI::App& app, const std::string& overrides);

// Returns the names of the top-level commands, in order.
std::vector<std::string> commands_of(const CommandTable& table);

// Returns the options that override a section or its keys: "--seed", "--optimizer.".
std::vector<std::string> override_words();

}  // namespace heddle::cli
