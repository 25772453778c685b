// Directories that the hosts of a run do not share are detected before the first step, with the names of the
// hosts.
#include "lib/run/loop/shared_directories.h"

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "heddle/transport/threads.h"
#include "lib/run/preflight/preflight.h"
#include "plugins/agreement/named_hosts.h"
#include "plugins/whole_runs.h"
#include "thrown.h"

namespace heddle::tests {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSharedDiskHint =
    "\n  hint: Set checkpoint.checkpoint_dir to a directory on a disk that all hosts share. On a cluster "
    "without a shared disk, export a directory of one host to the others over NFS, or set "
    "checkpoint.enabled: false to train without checkpoints.";

// Two hosts of two ranks. Each host has its own directory at the same path.
class SharedDirectories : public ::testing::Test {
 protected:
  // directories: checkpoint_dir of each host.
  std::vector<std::string> errors_of(const std::vector<std::string>& directories, int ranks_per_host = 2,
                                     const std::string& more = "", int other_seed_on = -1) {
    const int ranks = 4;
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    std::vector<RunSpec> specs;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string seed = "seed: " + std::string(rank == other_seed_on ? "3" : "2") + "\n";
      const Node configuration = config::read_text(
          seed + "model: {config: " + runs.model +
              ", dtype: float32}\ndataset: {file_pattern: " + (runs / "train.bin").string() +
              ", seq_len: 7}\nstep_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 2}\n"
              "distributed: {strategy: ddp}\ncheckpoint: {checkpoint_dir: " +
              (runs / "run").string() + more + "}\n",
          "run.yaml");
      PluginRegistry plugins = open_plugins(configuration, Log());
      specs.push_back(prepare_run(read_recipe(configuration, RecipeErrors::kept), plugins, ranks));
      specs.back().recipe.checkpoint.directory =
          (runs / directories[static_cast<size_t>(rank / ranks_per_host)]).string();
    }
    ThreadWorld world(ranks, std::chrono::seconds(6));  // a file is awaited for a quarter of the timeout
    world.run([&](Rendezvous& inner) {
      NamedHosts rendezvous(inner, ranks_per_host);
      const auto rank = static_cast<size_t>(inner.rank());
      errors[rank] = thrown_by([&] { check_shared_directories(specs[rank], rendezvous); });
    });
    return errors;
  }

  std::set<std::string> files(const std::string& directory) const {
    std::set<std::string> out;
    std::error_code missing;
    for (const fs::directory_entry& entry : fs::directory_iterator(runs / directory, missing))
      out.insert(entry.path().filename().string());
    return out;
  }

  WholeRuns runs;
};

TEST_F(SharedDirectories, AreAcceptedIfAllHostsSeeTheFileOfRank0) {
  EXPECT_EQ(errors_of({"run", "run"}), std::vector<std::string>(4));
  EXPECT_TRUE(fs::is_directory(runs / "run"));
  EXPECT_TRUE(files("run").empty());
}

TEST_F(SharedDirectories, AreRefusedOnEveryRankIfAHostHasItsOwn) {
  const std::string error =
      "error[config] run.yaml:6 checkpoint.checkpoint_dir: checkpoint_dir " + (runs / "run").string() +
      " is not one directory on all hosts: the file that rank 0 on host0 wrote there is not visible to ranks "
      "2, 3 on host1" +
      kSharedDiskHint;
  EXPECT_EQ(errors_of({"run", "own"}), std::vector<std::string>(4, error));
  EXPECT_TRUE(files("run").empty());
  EXPECT_FALSE(fs::exists(runs / "own"));
}

TEST_F(SharedDirectories, AreRefusedIfSeveralHostsHaveTheirOwn) {
  for (const std::string& error : errors_of({"run", "a", "run", "b"}, 1))
    EXPECT_THAT(error, ::testing::HasSubstr("is not visible to rank 1 on host1 and rank 3 on host3\n"));
}

TEST_F(SharedDirectories, AreRefusedIfAHostCannotWrite) {
  fs::create_directory(runs / "run");
  std::ofstream(runs / "file");
  const std::vector<std::string> errors = errors_of({"run", "file/below"});
  for (const std::string& error : errors)
    EXPECT_EQ(error,
              "error[config] run.yaml:6 checkpoint.checkpoint_dir: checkpoint_dir " +
                  (runs / "run").string() +
                  " cannot be written by ranks 2, 3 on host1: Not a directory\n  hint: Every rank writes "
                  "its part of a checkpoint. Give each host the right to write there, or set "
                  "checkpoint.checkpoint_dir to another directory.");
  for (const std::string& error : errors_of({"file/below", "run"}))
    EXPECT_THAT(error, ::testing::HasSubstr("cannot be written by ranks 0, 1 on host0: Not a directory"));
  EXPECT_TRUE(files("run").empty());
}

TEST_F(SharedDirectories, AreNotCheckedOnOneHostOrWithAnotherConfiguration) {
  EXPECT_EQ(errors_of({"run"}, 4), std::vector<std::string>(4));
  EXPECT_EQ(errors_of({"run", "own"}, 2, ", enabled: false"), std::vector<std::string>(4));
  EXPECT_EQ(errors_of({"run", "own"}, 2, "", /*other_seed_on=*/3), std::vector<std::string>(4));
  EXPECT_FALSE(fs::exists(runs / "run"));
}

}  // namespace
}  // namespace heddle::tests
