// Runs the program with its output in files, which cannot fill up like a pipe.
#include "started.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace flow {
namespace {

std::filesystem::path new_folder() {
  std::string place = (std::filesystem::temp_directory_path() / "heddle_flow_XXXXXX").string();
  return mkdtemp(place.data());
}

pid_t start(std::vector<std::string> words, std::vector<std::string> environment,
            const std::filesystem::path& folder) {
  const pid_t child = fork();
  if (child != 0) return child;
  setpgid(0, 0);
  signal(SIGHUP, SIG_DFL);  // nohup ignores it
  for (const auto& [stream, name] : {std::pair{STDOUT_FILENO, "out"}, std::pair{STDERR_FILENO, "error"}})
    if (dup2(open((folder / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), stream) < 0) _exit(126);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  unsetenv("HEDDLE_PLUGIN_PATH");
  setenv("OMP_NUM_THREADS", "1", 1);
  for (std::string& one : environment) putenv(one.data());
  execv(arguments[0], arguments.data());
  _exit(127);
}

Outcome finished(pid_t child, const std::filesystem::path& folder) {
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), read_text(folder / "out"),
          read_text(folder / "error")};
}

}  // namespace

Started::Started(const std::vector<std::string>& words, const std::vector<std::string>& environment)
    : folder_(new_folder()) {
  std::vector<std::string> all = {HEDDLE_BINARY_DIR "/heddle"};
  all.insert(all.end(), words.begin(), words.end());
  pid_ = start(all, environment, folder_);
}

Started::~Started() {
  if (pid_ > 0) kill(-pid_, SIGKILL);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<pid_t> Started::children() const {
  const std::string own = std::to_string(pid_);
  std::ifstream file("/proc/" + own + "/task/" + own + "/children");
  std::vector<pid_t> out;
  for (pid_t child = 0; file >> child;) out.push_back(child);
  return out;
}

std::string Started::output() const {
  return read_text(folder_ / "out");
}

std::string Started::errors() const {
  return read_text(folder_ / "error");
}

Outcome Started::wait() {
  return finished(std::exchange(pid_, -1), folder_);
}

bool eventually(const std::function<bool()>& question) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < end) {
    if (question()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

Words place(int rank, int ranks) {
  // Below the ephemeral ports.
  const std::string one = std::to_string(rank), all = std::to_string(ranks);
  return {"RANK=" + one,           "WORLD_SIZE=" + all,
          "LOCAL_RANK=" + one,     "LOCAL_WORLD_SIZE=" + all,
          "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(20000 + getpid() % 12000)};
}

Outcome shell(const std::string& command) {
  const std::filesystem::path folder = new_folder();
  const Outcome outcome = finished(start({"/bin/sh", "-c", command}, {}, folder), folder);
  std::filesystem::remove_all(folder);
  return outcome;
}

bool is_alive(pid_t pid) {
  return kill(pid, 0) == 0;
}

std::string read_text(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace flow
