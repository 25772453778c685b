// Runs the flow of `heddle train`, from configuration to ranks, in forked processes, so that LibTorch is
// loaded once for all runs.
#include "life.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/run/checkpointing/resume.h"
#include "lib/run/loop/run.h"
#include "lib/run/preflight/preflight.h"
#include "lib/run/spec/stop_request.h"
#include "trainer/cli/launch/launch.h"
#include "trainer/cli/launch/ranks.h"
#include "trainer/cli/run_commands.h"

namespace kills {
namespace {

namespace fs = std::filesystem;

int train(const Training& training, const fs::path& folder, const KillPoint& one, int killed_rank) {
  using namespace heddle;
  const Node read = config::read_text(training.yaml, "run.yaml");
  const Node configuration = config::with_override(read, "checkpoint.checkpoint_dir", folder.string());
  PluginRegistry plugins = open_plugins(configuration, Log());
  const cli::RankPlan plan = cli::plan_ranks(training.ranks);
  const RunSpec run = prepare_run(read_recipe(configuration), plugins, plan.world_size());
  if (training.user == Training::User::nobody && ::geteuid() == 0 && ::seteuid(65534) != 0) std::abort();
  return cli::run_ranks(plan, std::chrono::minutes(1), [&](Rendezvous& rendezvous) {
    at::set_num_threads(1);  // runs are too short for more threads
    if (rendezvous.rank() == killed_rank) kill_at_operation(one);
    StopRequest request;
    return run_rank(run, plugins, rendezvous, request);
  });
}

// Forks a process in its own process group that runs `body`, with output redirected to files.
template <class Body>
End in_a_process(const fs::path& words, const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
    ::dup2(::open(words.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    heddle::launch::be_rank({}, [&](const heddle::RankPlace&) { return body(); });
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  ::kill(-child, SIGKILL);  // ranks that outlived the launcher
  std::ostringstream said;
  said << std::ifstream(words).rdbuf();
  return {WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state), said.str()};
}

std::map<std::string, at::Tensor> read_tensors(const fs::path& directory) {
  heddle::checkpoint::ShardedReader reader(directory);
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, saved] : reader.manifest().tensors) {
    const at::Tensor& tensor = out[name] = at::empty(saved.shape, saved.dtype);
    reader.read({name, tensor, saved.shape, std::vector<int64_t>(saved.shape.size(), 0)});
  }
  return out;
}

}  // namespace

Training up_to(Training training, int steps) {
  const std::string all = "max_steps: 30";
  training.yaml.replace(training.yaml.find(all), all.size(), "max_steps: " + std::to_string(steps));
  return training;
}

End live(const Training& training, const fs::path& folder, const KillPoint& point, int killed_rank) {
  return in_a_process(folder.string() + ".words",
                      [&] { return train(training, folder, point, killed_rank); });
}

End live_again(const Training& training, const fs::path& folder, const KillPoint& one, int restarts) {
  const fs::path file = folder.string() + ".yaml";
  std::ofstream(file) << training.yaml;
  return in_a_process(folder.string() + ".words", [&] {
    kill_at_operation(one);
    heddle::cli::TrainCommand command;
    command.config = file;
    command.nproc_per_node = training.ranks;
    command.max_restarts = restarts;
    command.overrides = {{"checkpoint.checkpoint_dir", folder.string()}};
    return heddle::cli::train(command);
  });
}

std::string read_all(const fs::path& folder) {
  const End end = in_a_process(folder.string() + ".words", [&] {
    for (const fs::path& one : heddle::checkpoints_in(folder)) {
      heddle::read_position(one / heddle::kPositionFile);
      read_tensors(one / "model");
      read_tensors(one / "optim");
    }
    return 0;
  });
  return end.status == 0 ? "" : end.errors + "(status " + std::to_string(end.status) + ")";
}

std::string apart(const fs::path& one, const fs::path& other) {
  const End end = in_a_process(one.string() + ".words", [&] {
    const auto own = read_tensors(one / "model"), wanted = read_tensors(other / "model");
    for (const auto& [name, tensor] : wanted)
      if (!at::equal(own.at(name), tensor)) {
        std::cerr << name << " differs\n";
        return 1;
      }
    return own.size() == wanted.size() && !own.empty() ? 0 : 1;
  });
  return end.status == 0 ? "" : end.errors + "(status " + std::to_string(end.status) + ")";
}

}  // namespace kills
