// `heddle help` and `heddle completion`: texts generated from the declarations of all commands.
#include "trainer/cli/main/pages/pages.h"

#include <CLI/CLI.hpp>
#include <array>
#include <sstream>
#include <string_view>

#include "heddle/base/text.h"
#include "heddle/base/version.h"

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

namespace {

struct ManualRow {
  std::string_view name, text;
};

constexpr std::array<ManualRow, 5> kStatus = {{
    {"0", "Done."},
    {"1", "The run failed."},
    {"2", "The request is wrong: usage, configuration, plugin or input file."},
    {"130", "A run was stopped with Ctrl-C after it saved."},
    {"143", "A run was stopped with SIGTERM after it saved."},
}};

constexpr std::array<ManualRow, 12> kEnvironment = {{
    {"HEDDLE_TORCH", "Directory of an installed torch 2.11.0 package whose LibTorch is used."},
    {"HEDDLE_PLUGIN_PATH",
     "Directories to search for plugins, separated by colons, before the directory next to the program."},
    {"HEDDLE_DATA",
     "Directory of samples prepared from texts (default: data in "
     "checkpoint.checkpoint_dir)."},
    {"HEDDLE_PYTHON",
     "Python interpreter that prepares texts (default: python3); it needs tokenizers and jinja2."},
    {"HEDDLE_SIMULATED",
     "Order of the work on simulated GPUs: at_once, late, or the seed of a random order."},
    {"HEDDLE_SHARED_GPU", "1: ranks may share a GPU, for tests; bytes between them go through the host."},
    {"HEDDLE_SHM", "0: ranks of one machine communicate over Gloo instead of shared memory."},
    {"HEDDLE_CPU_CAPABILITY",
     "The widest instruction set that heddle's own CPU kernels use: default, avx2 or avx512 (default: the "
     "processor's)."},
    {"HEDDLE_PACKED_PRODUCT",
     "1: heddle's kernel computes every float32 product on the CPU. 0: LibTorch computes all of them. "
     "Default: "
     "heddle's kernel computes large products on AMD processors with AVX-512."},
    {"RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
     "Environment of a rank, as torchrun sets it; the variables of Slurm and Open MPI are read too."},
    {"HF_HOME, HF_HUB_CACHE", "Hugging Face cache that is searched for hub names."},
    {"HEDDLE_PLACES", "File with a line `NAME PATH` for each hub name that is read from a local path."},
}};

constexpr std::array<ManualRow, 4> kFiles = {{
    {"training.jsonl, validation.jsonl",
     "Metrics of a run, one JSON object per line, in checkpoint.checkpoint_dir."},
    {"loss.svg", "Plot of the loss, next to the metrics."},
    {"config.yaml", "The resolved configuration, in each checkpoint."},
    {"NAME.samples", "Samples that heddle prepare made from texts."},
}};

// Escapes text for roff: dashes that can be copied, no control lines.
std::string roff(std::string_view words) {
  std::string out;
  if (words.starts_with('.') || words.starts_with('\'')) out = "\\&";
  for (const char letter : words) {
    if (letter == '\\')
      out += "\\e";
    else if (letter == '-')
      out += "\\-";
    else if (letter == '\'')
      out += "\\(aq";
    else
      out += letter == '\n' ? ' ' : letter;
  }
  return out;
}

std::string bold(std::string_view words) {
  return "\\fB" + roff(words) + "\\fR";
}

std::string italic(std::string_view words) {
  return "\\fI" + roff(words) + "\\fR";
}

void manual_option(std::ostream& out, const OptionRow& option) {
  out << ".TP\n";
  const char* between = "";
  for (const std::string& name : option.names) {
    out << between << (name.starts_with('-') ? bold(name) : italic(name));
    between = ", ";
  }
  if (!option.value.empty() && option.names[0].starts_with('-')) out << " " << italic(option.value);
  out << "\n" << roff(option.help) << ".\n";
  if (option.kind == ValueKind::choice && option.value.find('|') == std::string::npos)
    out << "One of: " << roff(text::join(option.choices)) << ".\n";
}

void manual_synopsis(std::ostream& out, const CommandRow& command) {
  out << ".PP\n" << bold("heddle " + command.name);
  if (command.arguments.empty() && !command.below.empty()) out << " " << italic("COMMAND");
  for (const OptionRow& argument : command.arguments)
    out << (argument.is_required ? " " : " [") << italic(argument.value) << (argument.is_list ? "..." : "")
        << (argument.is_required ? "" : "]");
  for (const OptionRow& option : command.options)
    if (option.is_required && !option.value.empty())
      out << " " << bold(option.names.back()) << " " << italic(option.value);
  out << " [" << italic("OPTION") << "]...";
  if (command.takes_overrides) out << " [" << bold("--") << italic("SECTION.KEY VALUE") << "]...";
  out << "\n";
}

void manual_command(std::ostream& out, const CommandRow& command) {
  out << ".SS heddle " << roff(command.name) << "\n" << roff(command.help) << ".\n";
  manual_synopsis(out, command);
  for (const OptionRow& argument : command.arguments) manual_option(out, argument);
  for (const OptionRow& option : command.options) manual_option(out, option);
  if (!command.footer.empty()) out << ".PP\n" << roff(command.footer) << ".\n";
}

template <size_t count>
void manual_rows(std::ostream& out, const char* section, const std::array<ManualRow, count>& rows) {
  out << ".SH " << section << "\n";
  for (const ManualRow& row : rows) out << ".TP\n" << bold(row.name) << "\n" << roff(row.text) << "\n";
}

}  // namespace

std::string manual_page(const CommandTable& table) {
  std::ostringstream out;
  out << ".\\\" Made by: heddle help --man\n"
      << ".TH HEDDLE 1 \"\" \"heddle " << HEDDLE_VERSION << "\" \"User Commands\"\n"
      << ".SH NAME\nheddle \\- trains large language models in parallel\n"
      << ".SH SYNOPSIS\n"
      << bold("heddle") << " " << italic("COMMAND") << " [" << italic("ARGUMENT") << "]...\n"
      << ".SH DESCRIPTION\n"
      << roff(table.about) << "\nA YAML file, in the form of NeMo AutoModel\\(aqs recipes, names the model, "
      << "the data and the strategy.\n.SH OPTIONS\n";
  for (const OptionRow& option : table.options) manual_option(out, option);
  out << ".SH COMMANDS\n";
  for (const CommandRow& command : table.commands) manual_command(out, command);
  out << ".SH OVERRIDES\n"
      << bold("--") << italic("SECTION.KEY VALUE") << " or " << bold("--") << italic("SECTION.KEY=VALUE")
      << " overrides one value of the configuration. The value is read as YAML, so quote characters that "
         "YAML interprets, as in "
      << roff("--peft.target_modules \"'*_proj'\"") << ". " << bold("none")
      << " is null. Sections: " << roff(text::join(override_words())) << " and those of plugins.\n";
  manual_rows(out, "EXIT STATUS", kStatus);
  manual_rows(out, "ENVIRONMENT", kEnvironment);
  manual_rows(out, "FILES", kFiles);
  out << ".SH SEE ALSO\nThe documents in share/doc/heddle next to bin: README.md, docs/getting-started.md, "
      << "docs/fine-tuning.md, docs/reference.\n";
  return out.str();
}

}  // namespace heddle::cli
