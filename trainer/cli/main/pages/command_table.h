// The commands and options of the program as rows, read out of their declarations for CLI11.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace heddle::cli {

// What a value is, for completion.
enum class ValueKind { none, text, file, directory, command, choice };

struct OptionRow {
  std::vector<std::string> names;  // "-h", "--help"; one name without dashes for a positional argument
  std::string value;               // what help calls the value: FILE; empty for a flag
  std::string help;
  ValueKind kind = ValueKind::none;
  std::vector<std::string> choices;  // all values, where kind is choice
  bool is_required = false;
  bool is_list = false;  // may be given several times, or takes several words
};

struct CommandRow {
  std::string name;  // "train", "plugins list"
  std::string help, footer;
  std::vector<OptionRow> arguments, options;
  std::vector<std::string> below;  // names of its commands: list, inspect
  bool takes_overrides = false;    // --SECTION.KEY VALUE
};

struct CommandTable {
  std::string about;
  std::vector<OptionRow> options;    // of the program itself
  std::vector<CommandRow> commands;  // each before those below it
};

// All that `app` declares. A command whose footer is `overrides` takes overrides of the configuration.
CommandTable read_table(const CLI::App& app, const std::string& overrides);

// The names of the program's own commands, in order.
std::vector<std::string> commands_of(const CommandTable& table);

// The options that name a section, so that its keys can be overridden: "--seed", "--optimizer.".
std::vector<std::string> override_words();

}  // namespace heddle::cli
