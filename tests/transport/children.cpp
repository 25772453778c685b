// Restarts this program and forks ranks from it.
#include "transport/children.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/transport/join.h"
#include "trainer/cli/launch/launch.h"

namespace heddle::tests {
namespace {

std::map<std::string, PlainBody>& bodies() {
  static std::map<std::string, PlainBody> known;
  return known;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int be_rank(const RankPlace& place, const RankBody& body) {
  at::set_num_threads(1);
  GlooOptions options;
  options.timeout = std::chrono::milliseconds(std::stoi(variable("HEDDLE_TEST_TIMEOUT")));
  const int scarce = std::stoi(variable("HEDDLE_TEST_SCARCE"));
  if (scarce < 0 || scarce == place.rank) options.shared_memory = std::stoull(variable("HEDDLE_TEST_SHARED"));
  options.log = Log::to_stderr(place.rank);
  options.on_lost = [&](const Error& error) {
    say(place.rank, error.what());
    launch::end(error);
  };
  try {
    const auto rendezvous = mesh::join(place, options);
    const std::string text = body(*rendezvous);
    rendezvous->leave();
    say(place.rank, text);
  } catch (const std::exception& error) {
    say(place.rank, error.what());
    throw;
  }
  return 0;
}

pid_t start(const std::string& body, int ranks, const RunOptions& options, const std::string& folder) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::setpgid(0, 0);
  const int err = ::open((folder + "/err").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  ::dup2(err, STDERR_FILENO);
  ::setenv("HEDDLE_TEST_CHILD", body.c_str(), 1);
  ::setenv("HEDDLE_TEST_RANKS", std::to_string(ranks).c_str(), 1);
  ::setenv("HEDDLE_TEST_TIMEOUT", std::to_string(options.timeout.count()).c_str(), 1);
  ::setenv("HEDDLE_TEST_PATIENCE", std::to_string(options.patience.count()).c_str(), 1);
  ::setenv("HEDDLE_TEST_SHARED", std::to_string(options.shared_memory).c_str(), 1);
  ::setenv("HEDDLE_TEST_SCARCE", std::to_string(options.scarce_rank).c_str(), 1);
  ::setenv("HEDDLE_TEST_FOLDER", folder.c_str(), 1);
  ::execl("/proc/self/exe", "heddle_test_child", nullptr);
  ::_exit(127);
}

}  // namespace

namespace {

// Returns true if a process of the group exists and stays. A process that was just killed may still be
// exiting.
bool somebody_left(pid_t group) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (::waitpid(-group, nullptr, WNOHANG) > 0 || ::kill(-group, 0) == 0) {
    if (std::chrono::steady_clock::now() > end) return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

// Called by the tests' main() instead of running tests.
int be_child(const std::string& name) {
  const launch::Patience patience{.after_failure =
                                      std::chrono::milliseconds(std::stoi(variable("HEDDLE_TEST_PATIENCE")))};
  return launch::run(std::stoi(variable("HEDDLE_TEST_RANKS")), bodies().at(name), patience);
}

Known::Known(const std::string& name, RankBody body) {
  bodies()[name] = [body = std::move(body)](const RankPlace& place) { return be_rank(place, body); };
}

KnownPlain::KnownPlain(const std::string& name, PlainBody body) {
  bodies()[name] = std::move(body);
}

void say(int rank, const std::string& text) {
  const std::string path = variable("HEDDLE_TEST_FOLDER") + "/said" + std::to_string(rank);
  {
    std::ofstream file(path + ".new", std::ios::binary);
    file << text;
  }
  std::filesystem::rename(path + ".new", path);
}

void expect_all_say(const RunOutcome& run, int ranks, const std::string& text) {
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_FALSE(run.left_behind);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(run.said.at(rank), text) << "rank " << rank;
}

std::vector<int> everyone(const Rendezvous& rendezvous) {
  std::vector<int> ranks(rendezvous.world_size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

RunOutcome run_ranks(const std::string& body, int ranks, RunOptions options) {
  std::string folder = (std::filesystem::temp_directory_path() / "heddle_ranks.XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for the ranks");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // ranks without a launcher are reparented to this process
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = start(body, ranks, options, folder);
  const auto path = [&](int rank) { return folder + "/said" + std::to_string(rank); };
  for (int rank = 0; options.signal != 0 && rank < ranks; ++rank) {
    while (read(path(rank)) != "ready") std::this_thread::yield();
  }
  if (options.signal != 0) ::kill(pid, options.signal);
  int state = 0;
  ::waitpid(pid, &state, 0);
  RunOutcome outcome;
  outcome.time = std::chrono::steady_clock::now() - begin;
  outcome.status = WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
  outcome.left_behind = somebody_left(pid);
  for (int rank = 0; rank < ranks; ++rank) outcome.said[rank] = read(path(rank));
  outcome.err = read(folder + "/err");
  std::filesystem::remove_all(folder);
  return outcome;
}

}  // namespace heddle::tests
