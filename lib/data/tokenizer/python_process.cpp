// Starts Python and exchanges messages over a socket.
#include "lib/data/tokenizer/python_process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "heddle/base/error.h"

extern char** environ;

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int kSocketOfTheScript = 3;

// Returns the path of a script: next to this library in a build, next to its directory in an installation.
fs::path find_script(const std::string& name) {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&PythonProcess::python), &info);
  std::error_code ignored;
  const fs::path library = fs::canonical(info.dli_fname == nullptr ? "" : info.dli_fname, ignored);
  const fs::path here = library.parent_path() / "share" / "heddle" / name;
  const fs::path installed = library.parent_path().parent_path() / "share" / "heddle" / name;
  for (const fs::path& file : {here, installed})
    if (fs::exists(file, ignored)) return file;
  throw Error(ErrorCode::internal, installed.string(), "does not exist", "rebuild or reinstall heddle");
}

// Returns 0, or the error of posix_spawnp().
int start(const std::string& python, std::array<char*, 5> words, int socket, pid_t& process) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, kSocketOfTheScript);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const int failed = posix_spawnp(&process, python.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

}  // namespace

std::string PythonProcess::python() {
  const char* given = std::getenv("HEDDLE_PYTHON");
  return given != nullptr && *given != '\0' ? given : "python3";
}

PythonProcess::PythonProcess(const std::string& script, const std::string& argument) {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Error(ErrorCode::internal, script, std::string("cannot create a socket: ") + std::strerror(errno));
  socket_ = ends[0];
  std::string name = python(), file = find_script(script).string(), given = argument,
              number = std::to_string(kSocketOfTheScript);
  const int failed =
      start(name, {name.data(), file.data(), given.data(), number.data(), nullptr}, ends[1], process_);
  close(ends[1]);
  if (failed == 0) return;
  close(socket_);
  throw Error(ErrorCode::input, name, std::string("cannot be started: ") + std::strerror(failed),
              "install Python 3.9 or later with the package tokenizers, or set HEDDLE_PYTHON to one");
}

PythonProcess::~PythonProcess() {
  close(socket_);
  while (process_ > 0 && waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void PythonProcess::fail() {
  int status = 0;
  const pid_t ended = std::exchange(process_, -1);
  shutdown(socket_, SHUT_RDWR);
  while (ended > 0 && waitpid(ended, &status, 0) < 0 && errno == EINTR) continue;
  const bool killed = WIFSIGNALED(status);
  throw Error(ErrorCode::internal, python(),
              killed ? "the tokenizer's process was killed by signal " + std::to_string(WTERMSIG(status))
                     : "the tokenizer's process exited with status " + std::to_string(WEXITSTATUS(status)),
              killed && WTERMSIG(status) == SIGKILL
                  ? "if memory ran out, use smaller documents: --lines, or JSONL"
                  : "see its message above");
}

void PythonProcess::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) fail();
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void PythonProcess::send(nlohmann::json words, std::string_view payload) {
  words["bytes"] = payload.size();
  write(words.dump() + "\n");
  write(payload);
}

std::string PythonProcess::read(size_t bytes) {
  while (buffer_.size() < bytes) {
    const size_t had = buffer_.size(), room = std::max<size_t>(bytes - had, 1 << 12);
    buffer_.resize(had + room);
    ssize_t got = -1;
    do got = recv(socket_, buffer_.data() + had, room, 0);
    while (got < 0 && errno == EINTR);
    buffer_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) fail();
  }
  std::string out = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return out;
}

bool PythonProcess::has_message(std::chrono::nanoseconds patience) const {
  if (buffer_.find('\n') != std::string::npos) return true;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  pollfd waited{socket_, POLLIN, 0};
  return poll(&waited, 1, static_cast<int>(std::max<int64_t>(left, 0))) != 0;  // an error shows when reading
}

Message PythonProcess::receive() {
  size_t end = buffer_.find('\n');
  while (end == std::string::npos) {
    const size_t had = buffer_.size();
    const std::string more = read(had + 1);
    buffer_.insert(0, more);
    end = buffer_.find('\n', had);
  }
  Message message{nlohmann::json::parse(read(end + 1)), {}};
  message.payload = read(message.words.at("bytes").get<size_t>());
  return message;
}

}  // namespace heddle
