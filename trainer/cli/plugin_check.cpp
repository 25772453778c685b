// Forks before any tensor work: neither LibTorch's threads nor Gloo's are there yet.
#include "trainer/cli/plugin_check.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

namespace heddle::cli {
namespace {

using Json = nlohmann::json;

std::string written(const testing::Report& report) {
  Json out = Json::array();
  for (const testing::Check& check : report.checks) out.push_back({check.rule, check.passed, check.detail});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

testing::Report parsed(const std::string& text) {
  testing::Report report;
  for (const Json& check : Json::parse(text))
    report.checks.push_back({check[0].get<std::string>(), check[1].get<bool>(), check[2].get<std::string>()});
  return report;
}

// The child's half: it never returns.
[[noreturn]] void report_to(int pipe, const std::filesystem::path& file) {
  std::string text;
  try {
    text = written(testing::check_plugin(file));
  } catch (const std::exception& error) {
    text = written({{{"the check itself ends", false, error.what()}}});
  }
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(pipe, text.data() + at, text.size() - at);
    if (count <= 0) break;
    at += static_cast<size_t>(count);
  }
  _exit(0);
}

std::string read_all(int pipe) {
  std::string out;
  char bytes[4096];
  for (ssize_t count = 0; (count = ::read(pipe, bytes, sizeof(bytes))) != 0;) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    out.append(bytes, static_cast<size_t>(count));
  }
  return out;
}

}  // namespace

testing::Report check_apart(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file))
    throw Error(ErrorCode::plugin_missing, file.string(), "there is no such plugin file",
                "give the path of a libheddle_*.so");
  int ends[2];
  if (pipe(ends) != 0) throw Error(ErrorCode::internal, "heddle plugins check", std::strerror(errno));
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) throw Error(ErrorCode::internal, "heddle plugins check", std::strerror(errno));
  if (child == 0) {
    close(ends[0]);
    report_to(ends[1], file);
  }
  close(ends[1]);
  const std::string text = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !text.empty()) return parsed(text);
  const std::string how = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit";
  return {{{"the process lives on when it is opened", false,
            "it ended (" + how +
                "); throw nothing from static initialisers, and register operators in the entry"}}};
}

}  // namespace heddle::cli
