// Builds the table of commands and options from their CLI11 declarations.
#include "trainer/cli/main/pages/command_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "lib/run/recipe/section_names.h"

namespace heddle::cli {
namespace {

std::vector<std::string> split(std::string_view words, char at) {
  std::vector<std::string> out;
  while (!words.empty()) {
    const size_t end = std::min(words.find(at), words.size());
    out.emplace_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return out;
}

// Returns the values that a check allows; CLI::IsMember describes itself as {a,b,c}.
std::vector<std::string> allowed_values(const CLI::Option& option) {
  if (option.get_option_text().find('|') != std::string::npos) return split(option.get_option_text(), '|');
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open == type.npos || close == type.npos) return {};
  return split(std::string_view(type).substr(open + 1, close - open - 1), ',');
}

ValueKind kind_of(std::string_view value) {
  constexpr std::array<std::string_view, 5> files = {"FILE", "CONFIG", "TEXT...", "SRC", "TRACE"};
  constexpr std::array<std::string_view, 2> directories = {"DIR", "DST"};
  const auto has = [value](const auto& names) {
    return std::find(names.begin(), names.end(), value) != names.end();
  };
  return has(files)           ? ValueKind::file
         : has(directories)   ? ValueKind::directory
         : value == "COMMAND" ? ValueKind::command
                              : ValueKind::text;
}

// Returns the value's name, for example INT for "INT:INT in [1 - 1024]".
std::string value_name(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

OptionRow row_of(const CLI::Option& option) {
  OptionRow row;
  row.help = option.get_description();
  row.is_required = option.get_required();
  row.is_list = option.get_items_expected_max() > 1;
  if (option.get_positional()) {
    row.names = {option.get_single_name()};
    row.value = row.names[0];
    row.kind = kind_of(row.value == "TEXT" ? "TEXT..." : row.value);
  } else {
    for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
    if (option.get_items_expected_max() == 0) return row;  // a flag
    row.value = value_name(option);
    row.kind = kind_of(row.value);
  }
  row.choices = allowed_values(option);
  if (!row.choices.empty()) row.kind = ValueKind::choice;
  return row;
}

void add_command(CommandTable& table, const CLI::App& app, const std::string& name,
                 const std::string& overrides) {
  CommandRow row;
  row.name = name;
  row.help = app.get_description();
  row.takes_overrides = app.get_footer() == overrides;
  if (!row.takes_overrides) row.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options({}))
    (option->get_positional() ? row.arguments : row.options).push_back(row_of(*option));
  const auto below = app.get_subcommands({});
  for (const CLI::App* each : below) row.below.push_back(each->get_name());
  table.commands.push_back(std::move(row));
  for (const CLI::App* each : below) add_command(table, *each, name + " " + each->get_name(), overrides);
}

}  // namespace

CommandTable read_table(const CLI::App& app, const std::string& overrides) {
  CommandTable table;
  table.about = app.get_description();
  for (const CLI::Option* option : app.get_options({})) table.options.push_back(row_of(*option));
  for (const CLI::App* each : app.get_subcommands({})) add_command(table, *each, each->get_name(), overrides);
  return table;
}

std::vector<std::string> commands_of(const CommandTable& table) {
  std::vector<std::string> names;
  for (const CommandRow& command : table.commands)
    if (command.name.find(' ') == std::string::npos) names.push_back(command.name);
  return names;
}

std::vector<std::string> override_words() {
  std::vector<std::string> words;
  for (const std::string_view section : kSections) {
    const bool is_value = section == "seed" || section == "recipe" || section == "plugins";
    words.push_back("--" + std::string(section) + (is_value ? "" : "."));
  }
  return words;
}

}  // namespace heddle::cli
