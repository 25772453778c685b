// `heddle help` and `heddle completion`: texts generated from the declarations of all commands.
#include "trainer/cli/main/pages/pages.h"

#include <CLI/CLI.hpp>

#include "heddle/base/text.h"
#include "trainer/cli/main/pages/completion.h"
#include "trainer/cli/main/pages/manual.h"

namespace heddle::cli {
namespace {

const CLI::App* command_below(const CLI::App& app, const std::string& name) {
  for (const CLI::App* below : app.get_subcommands({}))
    if (below->get_name() == name) return below;
  return nullptr;
}

std::vector<std::string> names_below(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands({})) names.push_back(each->get_name());
  return names;
}

Error unknown_below(const CLI::App& command, const std::string& name, const std::string& word) {
  const std::vector<std::string> names = names_below(command);
  if (names.empty())
    return Error(ErrorCode::usage, name, "it has no subcommand '" + text::excerpt(word) + "'",
                 "run: heddle help" + name.substr(6));
  const std::string nearest = text::nearest(word, names);
  return Error(ErrorCode::usage, name,
               "unknown command '" + text::excerpt(word) + "'; available commands: " + text::join(names),
               nearest.empty() ? "run: heddle help" + name.substr(6) : "did you mean '" + nearest + "'?");
}

std::string help_of(const std::vector<std::string>& command, const CLI::App& app, const CLI::App& with_show) {
  const bool is_show = command.size() > 1 && command[0] == "data";
  const CLI::App* at = is_show ? &with_show : &app;
  std::string prefix = "heddle";
  for (const std::string& word : command) {
    const CLI::App* below = command_below(*at, word);
    if (below == nullptr && at == &app) throw unknown_command(app, word);
    if (below == nullptr) throw unknown_below(*at, prefix + " " + at->get_name(), word);
    if (at != &app && at != &with_show) prefix += " " + at->get_name();
    at = below;
  }
  return at->help(at == &app ? "" : prefix);
}

// Returns the table of all commands, with `data show` after `data`.
CommandTable whole_table(const CLI::App& app, const CLI::App& with_show, const std::string& overrides) {
  CommandTable table = read_table(app, overrides);
  for (const CommandRow& show : read_table(with_show, overrides).commands) {
    if (show.name != "data show") continue;
    for (size_t at = 0; at < table.commands.size(); ++at) {
      if (table.commands[at].name != "data") continue;
      table.commands[at].below = {"show"};
      table.commands.insert(table.commands.begin() + static_cast<std::ptrdiff_t>(at) + 1, show);
      break;
    }
  }
  return table;
}

}  // namespace

void add_pages(CLI::App& app, PagesAsked& to) {
  CLI::App* help = app.add_subcommand("help", "Prints the help of a command, or the manual page");
  CLI::Option* command = help->add_option("COMMAND", to.command, "Command, such as train or plugins inspect");
  help->add_flag("--man", to.manual, "Print the manual page of the program, for man")->excludes(command);
  CLI::App* completion = app.add_subcommand("completion", "Prints the completion script of a shell");
  completion->add_option("SHELL", to.shell, "Shell: bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("To enable completion in the current shell: source <(heddle completion bash)");
  for (CLI::App* each : {help, completion}) each->callback([&to] { to.is_asked = true; });
}

std::string page(const PagesAsked& asked, const CLI::App& app, const CLI::App& with_show,
                 const std::string& overrides) {
  if (asked.shell.empty() && !asked.manual) return help_of(asked.command, app, with_show);
  const CommandTable table = whole_table(app, with_show, overrides);
  if (asked.manual) return manual_page(table);
  return asked.shell == "bash"  ? bash_completion(table)
         : asked.shell == "zsh" ? zsh_completion(table)
                                : fish_completion(table);
}

Error unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names = names_below(app);
  const std::string nearest = text::nearest(word, names);
  return Error(ErrorCode::usage, "heddle",
               "unknown command '" + text::excerpt(word) + "'; available commands: " + text::join(names),
               nearest.empty() ? "run: heddle --help" : "did you mean '" + nearest + "'?");
}

}  // namespace heddle::cli
