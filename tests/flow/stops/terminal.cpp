// The controlling side of a pseudo terminal.
#include "terminal.h"

#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace flow {

Terminal::Terminal(const Words& words, unsigned short columns) {
  winsize size{};
  size.ws_row = 24, size.ws_col = columns;
  std::vector<std::string> kept = words;
  std::vector<char*> arguments;
  for (std::string& word : kept) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = ::forkpty(&screen_, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::runtime_error("no pseudo terminal");
  if (pid_ > 0) return;
  ::signal(SIGINT, SIG_DFL);  // a shell ignores it for background processes
  ::unsetenv("HEDDLE_PLUGIN_PATH");
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

Terminal::~Terminal() {
  ::close(screen_);  // hangs up on remaining processes
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Terminal::press(const std::string& keys) const {
  if (::write(screen_, keys.data(), keys.size()) < 0) throw std::runtime_error("the terminal is gone");
}

// A terminal that all processes have closed returns an error.
bool Terminal::read_more() {
  char part[4096];
  const ssize_t count = ::read(screen_, part, sizeof part);
  if (count > 0) shown_.append(part, count);
  return count > 0;
}

bool Terminal::shows(const std::string& text) {
  while (shown_.find(text) == std::string::npos)
    if (!read_more()) return false;
  return true;
}

int Terminal::wait() {
  while (read_more()) {
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return status;
}

}  // namespace flow
