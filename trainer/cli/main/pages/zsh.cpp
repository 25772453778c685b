// Zsh completion: one function per command, which describes its options to _arguments.
#include <sstream>

#include "heddle/base/text.h"
#include "trainer/cli/main/pages/pages.h"

namespace heddle::cli {
namespace {

// Escapes brackets, colons and backslashes, which _arguments interprets.
std::string escaped(const std::string& words) {
  std::string out;
  for (const char letter : words) {
    if (letter == '[' || letter == ']' || letter == ':' || letter == '\\') out += '\\';
    out += letter;
  }
  return out;
}

std::string function_of(const std::string& command) {
  std::string name = "_heddle";
  if (!command.empty()) name += "_" + command;
  for (char& letter : name)
    if (letter == ' ' || letter == '-') letter = '_';
  return name;
}

// Returns ":value:action" for the value of an option or argument.
std::string zsh_value_of(const CommandTable& table, const OptionRow& option) {
  const std::string name = ":" + escaped(option.value) + ":";
  switch (option.kind) {
    case ValueKind::none:
      return "";
    case ValueKind::text:
      return name;
    case ValueKind::file:
      return name + "_files";
    case ValueKind::directory:
      return name + "_files -/";
    case ValueKind::command:
      return name + "(" + text::join(commands_of(table), " ") + ")";
    case ValueKind::choice:
      return name + "(" + text::join(option.choices, " ") + ")";
  }
  return name;
}

void zsh_options(std::ostream& out, const CommandTable& table, const std::vector<OptionRow>& options) {
  for (const OptionRow& option : options)
    for (const std::string& name : option.names) {
      const bool is_long = name.starts_with("--") && option.kind != ValueKind::none;
      const std::string spec = (option.is_list ? "*" : "") + name + (is_long ? "=" : "") + "[" +
                               escaped(option.help) + "]" + zsh_value_of(table, option);
      out << " \\\n    " << quoted(spec);
    }
}

void zsh_arguments(std::ostream& out, const CommandTable& table, const CommandRow& command) {
  for (const OptionRow& argument : command.arguments) {
    const std::string value = zsh_value_of(table, argument);
    out << " \\\n    " << quoted((argument.is_list ? "*" : argument.is_required ? "" : ":") + value);
  }
  if (!command.takes_overrides) return;
  for (const std::string& word : override_words())
    out << " \\\n    "
        << quoted("*" + word + (word.ends_with(".") ? "-" : "=") + "[overrides a value of the file]:VALUE:");
}

// Dispatches to the function of the subcommand in the first word; `options` are those before it.
void zsh_choice(std::ostream& out, const CommandTable& table, const std::vector<OptionRow>& options,
                const std::string& name) {
  out << "  local context state state_descr line curcontext=$curcontext\n  typeset -A opt_args\n"
      << "  _arguments -C";
  zsh_options(out, table, options);
  out << " \\\n    '1:command:->command' '*::argument:->argument' && return\n"
      << "  if [[ $state == command ]]; then\n    local -a commands=(";
  std::string cases;
  const std::string prefix = name.empty() ? "" : name + " ";
  for (const CommandRow& below : table.commands) {
    if (!below.name.starts_with(prefix) || below.name.find(' ', prefix.size()) != std::string::npos) continue;
    const std::string word = below.name.substr(prefix.size());
    out << "\n      " << quoted(word + ":" + escaped(below.help));
    cases += "    " + word + ") " + function_of(below.name) + " ;;\n";
  }
  out << ")\n    _describe command commands\n    return\n  fi\n  case $words[1] in\n" << cases << "  esac\n";
}

void zsh_function(std::ostream& out, const CommandTable& table, const CommandRow& command) {
  out << "\n" << function_of(command.name) << "() {\n";
  if (command.arguments.empty() && !command.below.empty()) {
    zsh_choice(out, table, command.options, command.name);
  } else {
    for (const std::string& below : command.below)  // a subcommand where the first argument may stand too
      out << "  if (( CURRENT > 2 )) && [[ $words[2] == " << below << " ]]; then\n"
          << "    shift words\n    (( CURRENT-- ))\n    " << function_of(command.name + " " + below)
          << "\n    return\n  fi\n";
    out << "  _arguments -s";
    zsh_options(out, table, command.options);
    zsh_arguments(out, table, command);
    if (!command.below.empty())
      out << " \\\n    " << quoted("1::command:(" + text::join(command.below, " ") + ")");
    out << "\n";
  }
  out << "}\n";
}

}  // namespace

std::string zsh_completion(const CommandTable& table) {
  std::ostringstream out;
  out << "#compdef heddle\n# zsh completion of heddle, made by: heddle completion zsh\n";
  for (const CommandRow& command : table.commands) zsh_function(out, table, command);
  out << "\n_heddle() {\n";
  zsh_choice(out, table, table.options, "");
  out << "}\n\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _heddle \"$@\"\nelse\n"
      << "  compdef _heddle heddle\nfi\n";
  return out.str();
}

}  // namespace heddle::cli
