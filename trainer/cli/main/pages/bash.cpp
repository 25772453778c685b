// Bash completion: one function that finds the command and offers its options, or values by their kind.
#include <sstream>

#include "heddle/base/text.h"
#include "trainer/cli/main/pages/pages.h"

namespace heddle::cli {
namespace {

// Finds $command in the words before the cursor. "--key=value" arrives as three words.
constexpr const char* kBashHead = R"(_heddle() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= kind= words= options= at
  for ((at = 1; at < COMP_CWORD; ++at)); do
    case " $command ${COMP_WORDS[at]} " in
)";

constexpr const char* kBashAfterCommand = R"(        command="${command:+$command }${COMP_WORDS[at]}" ;;
      *) [[ ${COMP_WORDS[at]} == -* || $command ]] || command=${COMP_WORDS[at]} ;;
    esac
  done
  if [[ $word == '=' ]]; then
    word=
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  case "$command $before" in
)";

constexpr const char* kBashTail = R"(  esac
  COMPREPLY=()
  local IFS=$'\n'
  case $kind in
    file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
    directory) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$word")) ;;
  esac
  IFS=$' \t\n'
  [[ $word != -* ]] || words=$options
  COMPREPLY+=($(compgen -W "$words" -- "$word"))
  [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != --*. ]] || compopt -o nospace 2>/dev/null
}
complete -F _heddle heddle
)";

const char* bash_word_of(ValueKind kind) {
  return kind == ValueKind::file        ? "file"
         : kind == ValueKind::directory ? "directory"
         : kind == ValueKind::text      ? "text"
                                        : "words";
}

std::string commands_below(const CommandTable& table) {
  std::string out;
  for (const CommandRow& command : table.commands)
    for (const std::string& below : command.below)
      out += (out.empty() ? "      ' " : " | ' ") + command.name + " " + below + " '";
  return out.empty() ? out : out + ")\n";
}

// Cases for the value of an option.
void bash_values(std::ostream& out, const CommandTable& table, const CommandRow& command) {
  for (const OptionRow& option : command.options) {
    if (option.kind == ValueKind::none) continue;
    std::string patterns;
    for (const std::string& name : option.names)
      patterns += (patterns.empty() ? "'" : " | '") + command.name + " " + name + "'";
    out << "    " << patterns << ") kind=" << bash_word_of(option.kind);
    if (option.kind == ValueKind::choice) out << " words=" << quoted(text::join(option.choices, " "));
    if (option.kind == ValueKind::command) out << " words=" << quoted(text::join(commands_of(table), " "));
    out << " ;;\n";
  }
}

// Cases for other words: subcommands and values of arguments, or options after a dash.
void bash_words(std::ostream& out, const CommandTable& table, const CommandRow& command) {
  std::vector<std::string> words = command.below, options;
  for (const OptionRow& option : command.options)
    options.insert(options.end(), option.names.begin(), option.names.end());
  if (command.takes_overrides)
    for (const std::string& word : override_words()) options.push_back(word);
  const char* kind = "words";
  for (const OptionRow& argument : command.arguments) {
    words.insert(words.end(), argument.choices.begin(), argument.choices.end());
    if (argument.kind == ValueKind::command)
      for (const std::string& name : commands_of(table)) words.push_back(name);
    if (argument.kind == ValueKind::file || argument.kind == ValueKind::directory)
      kind = bash_word_of(argument.kind);
  }
  out << "    '" << command.name << " '*) kind=" << kind << " words=" << quoted(text::join(words, " "))
      << " options=" << quoted(text::join(options, " ")) << " ;;\n";
}

}  // namespace

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char letter : word) out += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return out + "'";
}

std::string bash_completion(const CommandTable& table) {
  std::ostringstream out;
  out << "# bash completion of heddle, made by: heddle completion bash\n"
      << kBashHead << commands_below(table) << kBashAfterCommand;
  for (const CommandRow& command : table.commands) bash_values(out, table, command);
  for (auto command = table.commands.rbegin(); command != table.commands.rend(); ++command)
    bash_words(out, table, *command);  // "plugins list" must precede "plugins"
  std::vector<std::string> options;
  for (const OptionRow& option : table.options)
    options.insert(options.end(), option.names.begin(), option.names.end());
  out << "    ' '*) kind=words words=" << quoted(text::join(commands_of(table), " "))
      << " options=" << quoted(text::join(options, " ")) << " ;;\n"
      << kBashTail;
  return out.str();
}

}  // namespace heddle::cli
