// Fish completion: one line per option with the condition on the command.
#include <sstream>

#include "heddle/base/text.h"
#include "trainer/cli/main/pages/pages.h"

namespace heddle::cli {
namespace {

// Quotes with single quotes, in which fish interprets only \\ and \'.
std::string fish_quoted(const std::string& words) {
  std::string out = "'";
  for (const char letter : words) {
    if (letter == '\'' || letter == '\\') out += '\\';
    out += letter;
  }
  return out + "'";
}

// Compares the words before the cursor, without options and the program, with those of a command.
constexpr const char* kFishHead = R"(# fish completion of heddle, made by: heddle completion fish
function __heddle_in
    set -l given (commandline -opc)[2..]
    set -l words (string match --invert -- '-*' $given)
    set -l count (count $argv)
    test (count $words) -ge $count; and test "$words[1..$count]" = "$argv"
end
function __heddle_first
    set -l given (commandline -opc)[2..]
    test (count (string match --invert -- '-*' $given)) -eq 0
end
complete -c heddle -f
)";

std::string fish_value_of(const CommandTable& table, const OptionRow& option) {
  switch (option.kind) {
    case ValueKind::none:
      return "";
    case ValueKind::text:
      return " -x";
    case ValueKind::file:
      return " -r -F";
    case ValueKind::directory:
      return " -x -a '(__fish_complete_directories)'";
    case ValueKind::command:
      return " -x -a " + fish_quoted(text::join(commands_of(table), " "));
    case ValueKind::choice:
      return " -x -a " + fish_quoted(text::join(option.choices, " "));
  }
  return "";
}

std::string fish_condition_of(const CommandRow& command) {
  return " -n " + fish_quoted("__heddle_in " + command.name);
}

void fish_option(std::ostream& out, const CommandTable& table, const std::string& condition,
                 const OptionRow& option) {
  out << "complete -c heddle" << condition;
  for (const std::string& name : option.names)
    out << (name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1));
  out << fish_value_of(table, option) << " -d " << fish_quoted(option.help) << "\n";
}

void fish_command(std::ostream& out, const CommandTable& table, const CommandRow& command) {
  const std::string condition = fish_condition_of(command);
  for (const OptionRow& option : command.options) fish_option(out, table, condition, option);
  for (const OptionRow& argument : command.arguments) {
    std::string value = fish_value_of(table, argument);
    if (argument.kind == ValueKind::text) continue;
    if (value.starts_with(" -x") || value.starts_with(" -r")) value.erase(0, 3);
    out << "complete -c heddle" << condition << value << "\n";
  }
  if (!command.takes_overrides) return;
  for (const std::string& word : override_words())
    out << "complete -c heddle" << condition << " -a " << fish_quoted(word)
        << " -d 'overrides a value of the file'\n";
}

}  // namespace

std::string fish_completion(const CommandTable& table) {
  std::ostringstream out;
  out << kFishHead;
  for (const OptionRow& option : table.options) fish_option(out, table, " -n __heddle_first", option);
  for (const CommandRow& command : table.commands) {
    const size_t space = command.name.rfind(' ');
    const std::string condition = space == std::string::npos
                                      ? " -n __heddle_first"
                                      : " -n " + fish_quoted("__heddle_in " + command.name.substr(0, space) +
                                                             "; and not __heddle_in " + command.name);
    out << "complete -c heddle" << condition << " -a "
        << fish_quoted(space == std::string::npos ? command.name : command.name.substr(space + 1)) << " -d "
        << fish_quoted(command.help) << "\n";
  }
  for (const CommandRow& command : table.commands) fish_command(out, table, command);
  return out.str();
}

}  // namespace heddle::cli
