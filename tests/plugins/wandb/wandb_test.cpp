// The plugin wandb: its lines have the contents of training.jsonl, in one directory per resumed run.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

Topology wandb_run(const std::string& fields, const std::string& more = "") {
  return {"run", 1, "{strategy: single}", "wandb: {" + fields + "}" + more};
}

std::vector<fs::path> wandb_runs_in(const fs::path& place) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(place / "wandb", none)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<Json> lines_in(const fs::path& file) {
  std::vector<Json> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

std::vector<int64_t> steps_in(const fs::path& run) {
  std::vector<int64_t> out;
  for (const Json& line : lines_in(run / "history.jsonl")) out.push_back(line["_step"]);
  return out;
}

TEST(Wandb, WritesTheContentsOfTheMetricsFiles) {
  const WholeRuns runs;
  const std::string set = "{file_pattern: " + (runs / "train.bin").string() + ", seq_len: 7}";
  testing::internal::CaptureStderr();
  runs.train({"run", 2, "{strategy: fsdp2}",
              "wandb: {project: looms, tags: [a, b], notes: warp}\nvalidation_dataset: " + set +
                  "\nvalidation_dataset_held: " + set},
             "run", 4);
  const std::string said = testing::internal::GetCapturedStderr();
  const auto made = wandb_runs_in(runs / "run");
  ASSERT_THAT(made, SizeIs(1));
  EXPECT_THAT(said, HasSubstr("[wandb] warning: nothing is sent to W&B: metrics are JSON lines in " +
                              (made[0] / "history.jsonl").string() + "\n"));
  const auto lines = lines_in(made[0] / "history.jsonl");
  ASSERT_THAT(lines, SizeIs(6));
  const auto training = lines_in(runs / "run/training.jsonl");
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(lines[i]["_step"], i);
    for (const char* name : {"epoch", "loss", "grad_norm", "lr", "tps", "num_label_tokens"})
      EXPECT_EQ(lines[i][name], training[i][name]) << name;
  }
  const double loss = lines_in(runs / "run/validation.jsonl").at(0)["loss"];
  EXPECT_EQ(lines[4]["val_loss"], loss);
  EXPECT_EQ(lines[5]["val_held/val_loss"], loss);
  const Json notes = lines_in(made[0] / "run.json").at(0);
  EXPECT_EQ(notes["project"], "looms");
  EXPECT_EQ(notes["tags"], Json({"a", "b"}));
  EXPECT_EQ(notes["name"], "run");
  EXPECT_EQ(lines_in(made[0] / "config.json").at(0)["seed"], 7);
}

TEST(Wandb, ContinuesInItsDirectoryOnResume) {
  const WholeRuns runs;
  const Topology topology = wandb_run("dir: " + (runs / "logs").string());
  runs.train(topology, "run", 6);
  const auto first = wandb_runs_in(runs / "logs");
  ASSERT_THAT(first, SizeIs(1));
  std::ofstream(first[0] / "history.jsonl", std::ios::app) << "{\"_step\":6,\"lo";  // killed while writing
  runs.train(topology, "run", 8, "run/epoch_0_step_3");
  EXPECT_EQ(wandb_runs_in(runs / "logs"), first);
  EXPECT_THAT(steps_in(first[0]), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(fs::exists(first[0] / "config.resumed-4.json"));
  runs.train(wandb_run("resume: never, dir: " + (runs / "logs").string()), "run", 9, "LATEST");
  const auto both = wandb_runs_in(runs / "logs");
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_THAT(steps_in(both[0] == first[0] ? both[1] : both[0]), ElementsAre(8));
}

TEST(Wandb, FindsARunByTheConfiguredId) {
  const WholeRuns runs;
  const std::string place = "save_dir: " + (runs / "logs").string();
  runs.train(wandb_run("id: warp-1, " + place), "run", 4);
  fs::remove(runs / "run/wandb_run_id");
  runs.train(wandb_run("id: warp-1, resume: must, " + place), "run", 5, "LATEST");
  ASSERT_THAT(wandb_runs_in(runs / "logs"), SizeIs(1));
  EXPECT_THAT(wandb_runs_in(runs / "logs")[0].string(), ::testing::EndsWith("-warp-1"));
  std::vector<std::string> refusals;
  runs.train(wandb_run("id: p-1, resume: must, " + place), "run", 6, "LATEST", &refusals);
  ASSERT_THAT(refusals, SizeIs(1));
  EXPECT_THAT(refusals[0],
              HasSubstr("resume is must, but " + (runs / "logs/wandb").string() + " has no run p-1"));
}

TEST(Wandb, WritesNothingIfDisabled) {
  for (const char* fields : {"mode: disabled", "enable: false, project: <your_project>, mode: online"}) {
    const WholeRuns runs;
    runs.train(wandb_run(fields), "run", 1);
    EXPECT_THAT(wandb_runs_in(runs / "run"), IsEmpty()) << fields;
    EXPECT_FALSE(fs::exists(runs / "run/wandb_run_id"));
  }
}

TEST(Wandb, TakesItsNameFromTheModel) {
  WholeRuns runs;
  runs.train({"run", 1, "{strategy: single}"}, "base", 4);
  runs.pretrained = "base";
  runs.train(wandb_run("tags: null"), "run", 1);
  const auto made = wandb_runs_in(runs / "run");
  ASSERT_THAT(made, SizeIs(1));
  const std::string parent = (runs / "base").parent_path().filename().string();
  EXPECT_EQ(lines_in(made[0] / "run.json").at(0)["name"], parent + "_base");
}

TEST(Wandb, IsRefusedIfAnotherFileHasTheNameOfItsId) {
  const WholeRuns runs;
  fs::create_directories(runs / "run");
  std::ofstream(runs / "run/wandb_run_id") << "my own notes";
  EXPECT_THAT(runs.refusal(wandb_run(""), "run"),
              HasSubstr("wandb_run_id exists and contains no id of a W&B run"));
}

TEST(Wandb, WarnsOnceWhenTheDiskIsFull) {
  const WholeRuns runs;
  runs.train(wandb_run("id: full"), "run", 4);
  const fs::path history = wandb_runs_in(runs / "run").at(0) / "history.jsonl";
  fs::remove(history);
  fs::create_symlink("/dev/full", history);
  std::ostringstream said;
  std::streambuf* before = std::cerr.rdbuf(said.rdbuf());
  const Told told = runs.train(wandb_run("id: full"), "run", 7, "LATEST");
  std::cerr.rdbuf(before);
  EXPECT_THAT(told.steps, SizeIs(7));
  EXPECT_THAT(said.str(), HasSubstr("warning: wandb gets no more metrics, but the run continues: "));
  EXPECT_THAT(said.str(), HasSubstr("cannot be written: No space left on device"));
}

}  // namespace
}  // namespace heddle::tests
