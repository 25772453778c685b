// The program runs with its output in files, which cannot fill up as a pipe can.
#include "program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace flow {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

void replace(int stream, const std::filesystem::path& file) {
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (opened < 0 || dup2(opened, stream) < 0) _exit(126);
}

[[noreturn]] void become(std::vector<std::string> words, std::vector<std::string> environment) {
  words.insert(words.begin(), HEDDLE_BINARY_DIR "/heddle");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  unsetenv("HEDDLE_PLUGIN_PATH");
  setenv("OMP_NUM_THREADS", "1", 1);
  for (std::string& one : environment) putenv(one.data());
  execv(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

Words plus(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Outcome heddle(const std::vector<std::string>& words, const std::vector<std::string>& environment) {
  std::string place = (std::filesystem::temp_directory_path() / "heddle_flow_XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(place.data());
  const pid_t child = fork();
  if (child == 0) {
    replace(STDOUT_FILENO, folder / "out");
    replace(STDERR_FILENO, folder / "error");
    become(words, environment);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Outcome outcome{WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), text_of(folder / "out"),
                  text_of(folder / "error")};
  std::filesystem::remove_all(folder);
  return outcome;
}

}  // namespace flow
