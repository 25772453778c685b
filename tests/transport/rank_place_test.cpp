// Environment variables of launchers: torchrun, OpenMPI, Slurm, and incomplete sets of variables.
#include "heddle/transport/rank_place.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "heddle/base/error.h"

namespace heddle {
namespace {

using Table = std::map<std::string, std::string>;

std::optional<RankPlace> place(const Table& table) {
  return place_from_environment([&](const char* name) -> const char* {
    const auto found = table.find(name);
    return found == table.end() ? nullptr : found->second.c_str();
  });
}

// Returns "rank/world local/local_world host:port launcher".
std::string text(const Table& table) {
  const auto found = place(table);
  if (!found) return "none";
  return std::to_string(found->rank) + "/" + std::to_string(found->world_size) + " " +
         std::to_string(found->local_rank) + "/" + std::to_string(found->local_world_size) + " " +
         found->host + ":" + std::to_string(found->port) + " " + found->launcher;
}

std::string refusal(const Table& table) {
  try {
    place(table);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    return error.where() + ": " + error.message();
  }
  return "accepted";
}

const Table kTorchrun = {{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "10.0.0.7"},
                         {"MASTER_PORT", "29500"}};

Table with(Table table, const Table& more) {
  for (const auto& [name, value] : more) table[name] = value;
  return table;
}

Table without(Table table, const std::string& name) {
  table.erase(name);
  return table;
}

TEST(RankPlace, IsEmptyWithoutALauncher) {
  EXPECT_EQ(text({{"HOME", "/root"}, {"MASTER_ADDR", "x"}}), "none");
}

TEST(RankPlace, TorchrunSaysEverything) {
  EXPECT_EQ(text(kTorchrun), "5/8 1/4 10.0.0.7:29500 torchrun");
  EXPECT_FALSE(place(kTorchrun)->store_served);
  const auto served =
      place(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_TRUE(served->store_served);
  EXPECT_EQ(served->session, "2");
}

TEST(RankPlace, InfersSharedMachinesFromTheMasterAddress) {
  Table table = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "4000"}};
  EXPECT_EQ(text(table), "1/2 1/2 127.0.0.1:4000 torchrun");
  table["MASTER_ADDR"] = "node1";
  EXPECT_EQ(text(table), "1/2 0/1 node1:4000 torchrun");
}

TEST(RankPlace, NeedsNoMasterForOneRank) {
  EXPECT_EQ(text({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "0/1 0/1 127.0.0.1:0 torchrun");
}

TEST(RankPlace, HalfAnEnvironmentNamesWhatIsMissing) {
  const std::string missing = ": is not set, although the launcher's other variables are";
  EXPECT_EQ(refusal(without(kTorchrun, "WORLD_SIZE")), "environment WORLD_SIZE" + missing);
  EXPECT_EQ(refusal(without(kTorchrun, "RANK")), "environment RANK" + missing);
  EXPECT_EQ(refusal(without(kTorchrun, "LOCAL_RANK")), "environment LOCAL_RANK" + missing);
  EXPECT_EQ(refusal(without(kTorchrun, "LOCAL_WORLD_SIZE")), "environment LOCAL_WORLD_SIZE" + missing);
  EXPECT_EQ(refusal(without(kTorchrun, "MASTER_PORT")), "environment MASTER_PORT" + missing);
  EXPECT_EQ(refusal(without(kTorchrun, "MASTER_ADDR")),
            "environment MASTER_ADDR: is not set, although RANK is");
  for (const char* host : {"node1:29500", "[fd77::1]"})
    EXPECT_EQ(refusal(with(kTorchrun, {{"MASTER_ADDR", host}})),
              std::string("environment MASTER_ADDR: is '") + host + "', which is not a name or an address");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"}}), "environment RANK" + missing);
}

TEST(RankPlace, QuotesAValueThatIsNoNumberInRange) {
  EXPECT_EQ(refusal(with(kTorchrun, {{"RANK", "x"}})),
            "environment RANK: is 'x'; a whole number from 0 to 7 is needed");
  EXPECT_EQ(refusal(with(kTorchrun, {{"RANK", "8"}})),
            "environment RANK: is '8'; a whole number from 0 to 7 is needed");
  EXPECT_EQ(refusal(with(kTorchrun, {{"RANK", "-1"}})),
            "environment RANK: is '-1'; a whole number from 0 to 7 is needed");
  EXPECT_EQ(refusal(with(kTorchrun, {{"RANK", "1 "}})),
            "environment RANK: is '1 '; a whole number from 0 to 7 is needed");
  EXPECT_EQ(refusal(with(kTorchrun, {{"WORLD_SIZE", ""}})),
            "environment WORLD_SIZE: is ''; a whole number from 1 to 16777216 is needed");
  EXPECT_EQ(refusal(with(kTorchrun, {{"LOCAL_RANK", "4"}})),
            "environment LOCAL_RANK: is '4'; a whole number from 0 to 3 is needed");
  EXPECT_EQ(refusal(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
            "environment MASTER_PORT: is '70000'; a whole number from 1 to 65535 is needed");
}

const Table kSlurm = {{"SLURM_PROCID", "5"},       {"SLURM_NTASKS", "8"},
                      {"SLURM_LOCALID", "1"},      {"SLURM_TASKS_PER_NODE", "4(x2)"},
                      {"SLURM_NODEID", "1"},       {"SLURM_STEP_NODELIST", "gpu[007-008]"},
                      {"SLURM_JOB_ID", "1234567"}, {"SLURM_STEP_ID", "0"}};

TEST(RankPlace, SlurmMeetsOnItsFirstNodeAtAPortOfTheJob) {
  const auto found = place(kSlurm);
  EXPECT_EQ(text(kSlurm), "5/8 1/4 gpu007:" + std::to_string(found->port) + " slurm");
  EXPECT_GE(found->port, 20000);
  EXPECT_LT(found->port, 32000);
  EXPECT_EQ(place(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}))->port, found->port);
  EXPECT_NE(place(with(kSlurm, {{"SLURM_JOB_ID", "1234568"}}))->port, found->port);
}

TEST(RankPlace, SlurmNodeListsInTheirForms) {
  const auto host = [](const std::string& list) {
    return place(with(kSlurm, {{"SLURM_STEP_NODELIST", list}}))->host;
  };
  EXPECT_EQ(host("login1,gpu[1-3]"), "login1");
  EXPECT_EQ(host("gpu[3,7]"), "gpu3");
  EXPECT_EQ(host("gpu[12]"), "gpu12");
  EXPECT_EQ(host("a-b-c"), "a-b-c");
  EXPECT_EQ(place(without(with(kSlurm, {{"SLURM_NODELIST", "n1,n2"}}), "SLURM_STEP_NODELIST"))->host, "n1");
}

TEST(RankPlace, SlurmTasksPerNodeInTheirForms) {
  const auto local = [](const std::string& node, const std::string& counts) {
    return place(with(kSlurm, {{"SLURM_NODEID", node}, {"SLURM_TASKS_PER_NODE", counts}}))->local_world_size;
  };
  EXPECT_EQ(local("1", "5,3"), 3);
  EXPECT_EQ(local("2", "2(x3),1"), 2);
  EXPECT_EQ(local("0", "2(x3),2"), 2);
  EXPECT_EQ(place(without(with(kSlurm, {{"SLURM_NTASKS_PER_NODE", "4"}}), "SLURM_TASKS_PER_NODE"))
                ->local_world_size,
            4);
  EXPECT_EQ(refusal(with(kSlurm, {{"SLURM_TASKS_PER_NODE", "4(x"}})),
            "environment SLURM_TASKS_PER_NODE: is '4(x'; counts like '2(x3),1' are needed");
  EXPECT_EQ(
      refusal(without(kSlurm, "SLURM_TASKS_PER_NODE")),
      "environment SLURM_NTASKS_PER_NODE: is not set, nor is SLURM_TASKS_PER_NODE, although SLURM_PROCID is");
}

TEST(RankPlace, SlurmOnOneNodeMeetsOnLoopbackAndAStepCountsItsOwnTasks) {
  const auto found = place({{"SLURM_PROCID", "1"},
                            {"SLURM_NTASKS", "8"},
                            {"SLURM_STEP_NUM_TASKS", "2"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2"},
                            {"SLURM_STEP_NODELIST", "n5"}});
  EXPECT_EQ(found->world_size, 2);
  EXPECT_EQ(found->host, "127.0.0.1");
}

TEST(RankPlace, MasterVariablesWinUnderEveryLauncher) {
  const Table master = {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "777"}};
  EXPECT_EQ(text(with(kSlurm, master)), "5/8 1/4 head:777 slurm");
}

const Table kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_NAMESPACE", "prterun-host-42@1"}};

TEST(RankPlace, OpenMpiOnOneMachineNeedsNoMaster) {
  const auto found = place(kOpenMpi);
  EXPECT_EQ(text(kOpenMpi), "3/4 3/4 127.0.0.1:" + std::to_string(found->port) + " openmpi");
  EXPECT_GE(found->port, 20000);
}

TEST(RankPlace, OpenMpiOnSeveralMachinesNeedsTheMastersName) {
  const Table two =
      with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(refusal(two), "environment MASTER_ADDR: is not set, and the ranks are on several machines");
  EXPECT_EQ(place(with(two, {{"MASTER_ADDR", "head"}}))->host, "head");
}

TEST(RankPlace, MpirunInsideASlurmJobIsMpirun) {
  EXPECT_EQ(place(with(kOpenMpi, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}))->launcher, "openmpi");
}

TEST(RankPlace, CoresAreSharedByTheRanksOfAMachine) {
  EXPECT_GE(threads_per_rank(1), 1);
  EXPECT_EQ(threads_per_rank(1 << 20), 1);
}

}  // namespace
}  // namespace heddle
