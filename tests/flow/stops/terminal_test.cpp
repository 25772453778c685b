// Output of a run in a terminal, and the effect of Ctrl-C.
#include "terminal.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <regex>

#include "stopping.h"

namespace flow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const Words kProgram = {HEDDLE_BINARY_DIR "/heddle"};

// Returns the texts between carriage returns, without the erase sequence after each.
std::vector<std::string> pieces(const std::string& shown) {
  std::vector<std::string> out;
  const std::regex between("[\r\n]+"), erasing("\033\\[K");
  const std::string text = std::regex_replace(shown, erasing, "");
  for (std::sregex_token_iterator piece(text.begin(), text.end(), between, -1), end; piece != end; ++piece)
    out.push_back(*piece);
  return out;
}

TEST(Terminal, KeepsTheProgressLineOnOneLine) {
  for (const unsigned short columns : {200, 80, 40}) {
    const TrainingFiles files;
    Terminal terminal(plus(kProgram, files.train("run")), columns);
    const int status = terminal.wait();
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << terminal.shown();
    size_t steps = 0;
    for (const std::string& piece : pieces(terminal.shown())) {
      if (!piece.starts_with("step ")) continue;
      ++steps;
      EXPECT_LT(piece.size(), columns) << piece;
      EXPECT_THAT(piece, HasSubstr("  loss "));
    }
    EXPECT_EQ(steps, 12u);
  }
}

TEST(Terminal, HasALineForEachSaveThatCountsBothWays) {
  const TrainingFiles files;
  Terminal terminal(
      plus(kProgram, files.train("run", {"--nproc-per-node", "2", "--step_scheduler.ckpt_every_steps", "6",
                                         "--checkpoint.save_consolidated", "false"})),
      100);
  terminal.wait();
  for (const char* save : {"epoch_0_step_5 after step 6 (counted from 0: step 5)",
                           "epoch_0_step_11 after step 12 (counted from 0: step 11)"})
    EXPECT_THAT(terminal.shown(), HasSubstr("\r\nsaved " + files.path("run/") + save + "\r\n"));
}

// The launcher's message, which comes from another process than the progress line.
TEST(Terminal, PrintsMessagesOnSeparateLines) {
  for (const char* ranks : {"1", "2"}) {
    const TrainingFiles files;
    Terminal terminal(plus(kProgram, plus(files.train("run", {"--nproc-per-node", ranks}), kLong)), 80);
    ASSERT_TRUE(terminal.shows("step 3/"));
    terminal.press("\x03");
    const int status = terminal.wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status << terminal.shown();
    EXPECT_THAT(terminal.shown(), HasSubstr("\r\nSIGINT: the run saves and stops after this step"));
    EXPECT_THAT(terminal.shown(), HasSubstr("\r\nstopped by SIGINT after step "));
    EXPECT_EQ(checkpoints(files), 1u);
  }
}

TEST(Terminal, EndsALoopOfItsShellByCtrlC) {
  const TrainingFiles files;
  std::string command;
  for (const std::string& word : plus(plus(kProgram, files.train("run", {"--nproc-per-node", "2"})), kLong))
    command += "'" + word + "' ";
  Terminal terminal({"/bin/bash", "-c", "for lr in 1e-3 1e-4; do echo lr $lr; " + command + "; done"}, 80);
  ASSERT_TRUE(terminal.shows("step 3/"));
  terminal.press("\x03");
  terminal.wait();
  EXPECT_THAT(terminal.shown(), HasSubstr("lr 1e-3"));
  EXPECT_THAT(terminal.shown(), HasSubstr("stopped by SIGINT after step "));
  EXPECT_THAT(terminal.shown(), Not(HasSubstr("lr 1e-4")));
}

}  // namespace
}  // namespace flow
