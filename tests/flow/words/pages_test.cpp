// Help, completion and the manual page contain each option of the program, and the shells accept them.
#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "flow/program.h"
#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;

Words split_words(const std::string& line) {
  std::istringstream in(line);
  Words out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// Returns the indented names of a section of a help text: commands, or options at the start of a line.
std::set<std::string> names_in(const std::string& help, const std::string& section) {
  std::set<std::string> out;
  const size_t at = help.find("\n" + section + ":\n");
  if (at == std::string::npos) return out;
  std::istringstream in(help.substr(at + section.size() + 3));
  for (std::string line; std::getline(in, line) && !line.empty();) {
    std::smatch match;
    static const std::regex kName("^  (-[^ ]+|[a-z]+)( .*)?$");
    if (!std::regex_match(line, match, kName)) continue;
    std::istringstream names(match[1]);
    for (std::string name; std::getline(names, name, ',');) out.insert(name);
  }
  return out;
}

// Returns "", "train", "plugins list": the commands in the help, and the command that may be replaced by a
// file.
Words all_commands(const std::string& from = "") {
  Words out;
  for (const std::string& below : names_in(heddle(plus({"help"}, split_words(from))).out, "Subcommands")) {
    const std::string name = from.empty() ? below : from + " " + below;
    out.push_back(name);
    if (name == "plugins") out = plus(out, all_commands(name));
    if (name == "data") out.push_back("data show");
  }
  return out;
}

TEST(Pages, HelpOfACommandEqualsItsHelpOption) {
  EXPECT_EQ(heddle({"help"}).out, heddle({"--help"}).out);
  for (const Words& command : {Words{"train"}, {"plugins", "inspect"}, {"data", "show"}}) {
    const Outcome help = heddle(plus({"help"}, command));
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr("Usage: heddle " + command[0]));
    EXPECT_EQ(help.out, heddle(plus(command, {"--help"})).out);
  }
  EXPECT_THAT(heddle({"help", "trian"}).error,
              HasSubstr("error[usage] heddle: unknown command 'trian'; available commands: train, check, "));
  const Outcome below = heddle({"help", "plugins", "lst"});
  EXPECT_EQ(below.status, 2);
  EXPECT_EQ(
      below.error,
      "error[usage] heddle plugins: unknown command 'lst'; available commands: list, inspect, check, new\n"
      "  hint: did you mean 'list'?\n");
}

TEST(Pages, ListEveryOptionOfEveryCommand) {
  const std::string bash = heddle({"completion", "bash"}).out, zsh = heddle({"completion", "zsh"}).out,
                    fish = heddle({"completion", "fish"}).out, manual = heddle({"help", "--man"}).out;
  const Words commands = all_commands();
  ASSERT_GT(commands.size(), 14u);
  for (const std::string& command : commands) {
    SCOPED_TRACE(command);
    EXPECT_THAT(manual, HasSubstr(".SS heddle " + command + "\n"));
    const size_t at_bash = bash.find("    '" + command + " '*) ");
    ASSERT_NE(at_bash, std::string::npos);
    const std::string row = bash.substr(at_bash, bash.find(";;", at_bash) - at_bash);
    const std::string function = "\n_heddle_" + std::regex_replace(command, std::regex(" "), "_") + "() {\n";
    const size_t at_zsh = zsh.find(function);
    ASSERT_NE(at_zsh, std::string::npos);
    const std::string body = zsh.substr(at_zsh, zsh.find("\n}\n", at_zsh) - at_zsh);
    const auto options = names_in(heddle(plus({"help"}, split_words(command))).out, "Options");
    EXPECT_GT(options.size(), 1u);
    for (const std::string& option : options) {
      EXPECT_TRUE(std::regex_search(row, std::regex("[ ']" + option + "[ ']"))) << option << " in " << row;
      EXPECT_TRUE(std::regex_search(body, std::regex("'[*]?" + option + "=?\\[")))
          << option << " in " << body;
      const std::string line =
          "complete -c heddle -n '__heddle_in " + command + "'.* -" +
          (option.starts_with("--") ? "l " + option.substr(2) : "s " + option.substr(1)) + " ";
      EXPECT_TRUE(std::regex_search(fish, std::regex(line))) << line;
      EXPECT_THAT(manual, HasSubstr("\\fB" + std::regex_replace(option, std::regex("-"), "\\-") + "\\fR"));
    }
  }
}

// Returns bash's completions of the last word.
std::set<std::string> offered(const TrainingFiles& files, const std::string& words, const std::string& last) {
  const std::string file = files.path("completion.bash");
  std::ofstream(file) << heddle({"completion", "bash"}).out;
  const std::string script =
      "cd " + files.path("") + "; . " + file + "; COMP_WORDS=(heddle " + words + " '" + last +
      "'); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _heddle; printf '%s\\n' \"${COMPREPLY[@]}\"";
  const Words lines =
      split_words(shell("exec bash -c '" + std::regex_replace(script, std::regex("'"), "'\\''") + "'").out);
  return {lines.begin(), lines.end()};
}

TEST(Completion, OffersCommandsOptionsAndValuesInBash) {
  using Set = std::set<std::string>;
  const TrainingFiles files;
  EXPECT_EQ(offered(files, "", "tr"), (Set{"train"}));
  EXPECT_EQ(offered(files, "plugins", ""), (Set{"list", "inspect", "check", "new"}));
  EXPECT_EQ(offered(files, "train run.yaml", "--tr"), (Set{"--trace", "--trace-steps", "--trace-operators"}));
  EXPECT_EQ(offered(files, "train", "ru"), (Set{"run.yaml"}));
  EXPECT_EQ(offered(files, "train run.yaml", "--optim"), (Set{"--optimizer."}));
  EXPECT_EQ(offered(files, "data show", "--c"), (Set{"--color"}));
  EXPECT_EQ(offered(files, "plugins inspect --config", "ru"), (Set{"run.yaml"}));
  EXPECT_EQ(offered(files, "schedule --format", ""), (Set{"table", "csv", "json", "svg"}));
  EXPECT_EQ(offered(files, "schedule --format =", "s"), (Set{"svg"}));
  EXPECT_EQ(offered(files, "help", "pl"), (Set{"plan", "plugins"}));
  EXPECT_EQ(offered(files, "train run.yaml --nproc-per-node", ""), Set{});
}

// Shells that are not installed are skipped. bash always is.
TEST(Completion, IsValidInItsShells) {
  const TrainingFiles files;
  for (const std::string name : {"bash", "zsh", "fish"}) {
    if (name != "bash" && shell("command -v " + name).status != 0) continue;
    const std::string file = files.path("completion." + name);
    std::ofstream(file) << heddle({"completion", name}).out;
    const Outcome read = shell(name + " -n " + file);
    EXPECT_EQ(read.status, 0) << name << ": " << read.error;
    EXPECT_EQ(read.error, "") << name;
  }
  EXPECT_THAT(heddle({"completion", "tcsh"}).error, HasSubstr("tcsh not in {bash,zsh,fish}"));
}

TEST(Completion, WorksInFish) {
  if (shell("command -v fish").status != 0) GTEST_SKIP() << "fish is not installed";
  const TrainingFiles files;
  std::ofstream(files.path("c.fish")) << heddle({"completion", "fish"}).out;
  const auto offers = [&](const std::string& line) {
    return shell("exec fish --no-config -c \"source " + files.path("c.fish") + "; complete -C '" + line +
                 "'\"")
        .out;
  };
  EXPECT_THAT(offers("heddle tr"), HasSubstr("train\tTrains the model"));
  EXPECT_THAT(offers("heddle data show --co"), HasSubstr("--color"));
  EXPECT_THAT(offers("heddle plugins ins"), HasSubstr("inspect\t"));
}

TEST(Manual, IsRoffAndNamesEveryEnvironmentVariable) {
  const TrainingFiles files;
  const std::string manual = heddle({"help", "--man"}).out;
  if (shell("command -v groff").status == 0) {
    std::ofstream(files.path("heddle.1")) << manual;
    const Outcome read = shell("groff -ww -man -z " + files.path("heddle.1"));
    EXPECT_EQ(read.status, 0);
    EXPECT_EQ(read.error, "");
  }
  const Outcome names =
      shell("grep -rhoE 'getenv\\(\"HEDDLE_[A-Z_]+' " HEDDLE_SOURCE_DIR "/core " HEDDLE_SOURCE_DIR
            "/lib " HEDDLE_SOURCE_DIR "/trainer " HEDDLE_SOURCE_DIR "/plugins");
  const Words found = split_words(names.out);
  ASSERT_GE(found.size(), 5u);
  for (const std::string& variable : found)
    EXPECT_THAT(manual, HasSubstr("\\fB" + variable.substr(variable.find('"') + 1) + "\\fR")) << variable;
}

}  // namespace
}  // namespace flow
