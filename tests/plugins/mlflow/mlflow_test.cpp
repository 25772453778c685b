// The plugin mlflow: its store, read file by file, has the contents of training.jsonl.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Reads the keys of a meta.yaml. Quoted values are JSON.
std::map<std::string, std::string> meta_in(const fs::path& directory) {
  std::map<std::string, std::string> out;
  std::ifstream in(directory / "meta.yaml");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    const std::string value = line.substr(colon + 2);
    out[line.substr(0, colon)] =
        value.starts_with("\"") ? nlohmann::json::parse(value).get<std::string>() : value;
  }
  return out;
}

struct StoredPoint {
  int64_t time = 0, step = 0;
  double value = 0;
};
std::vector<StoredPoint> points_of(const fs::path& metric) {
  std::vector<StoredPoint> out;
  std::ifstream in(metric);
  for (StoredPoint one; in >> one.time >> one.value >> one.step;) out.push_back(one);
  return out;
}
std::vector<int64_t> steps_of(const fs::path& metric) {
  std::vector<int64_t> out;
  for (const StoredPoint& point : points_of(metric)) out.push_back(point.step);
  return out;
}

// Returns the run directories of all experiments of a store.
std::vector<fs::path> stored_runs_in(const fs::path& store) {
  std::vector<fs::path> out;
  std::error_code none;
  for (const auto& experiment : fs::directory_iterator(store, none))
    for (const auto& entry : fs::directory_iterator(experiment.path(), none))
      if (entry.is_directory()) out.push_back(entry.path());
  return out;
}

Topology mlflow_run(const std::string& fields, const std::string& more = "") {
  return {"run", 1, "{strategy: single}", "mlflow: {" + fields + "}" + more};
}

TEST(MLflow, StoresTheContentsOfTheMetricsFiles) {
  const WholeRuns runs;
  const std::string set = "{file_pattern: " + (runs / "train.bin").string() + ", seq_len: 7}";
  runs.train({"run", 2, "{strategy: fsdp2}",
              "mlflow: {}\nvalidation_dataset: " + set + "\nvalidation_dataset_held: " + set},
             "run", 4);
  const auto made = stored_runs_in(runs / "run/mlruns");
  ASSERT_THAT(made, SizeIs(1));
  std::ifstream in(runs / "run/training.jsonl");
  size_t step = 0;
  for (std::string line; std::getline(in, line); ++step) {
    const auto record = nlohmann::json::parse(line);
    for (const char* name : {"loss", "grad_norm", "lr", "tps", "num_label_tokens"}) {
      const auto points = points_of(made[0] / "metrics" / name);
      ASSERT_THAT(points, SizeIs(4)) << name;
      EXPECT_EQ(points[step].step, record["step"]);
      EXPECT_EQ(points[step].value, record[name]) << name;
      EXPECT_GT(points[step].time, 1'700'000'000'000);
    }
  }
  EXPECT_EQ(step, 4u);
  const auto held = points_of(made[0] / "metrics/val_held/val_loss");
  ASSERT_THAT(held, SizeIs(1));
  EXPECT_EQ(held[0].step, 3);
  EXPECT_EQ(held[0].value, points_of(made[0] / "metrics/val_loss").at(0).value);
  EXPECT_EQ(points_of(made[0] / "metrics/val_held/lr").at(0).value,
            points_of(made[0] / "metrics/lr")[3].value);
}

TEST(MLflow, DescribesExperimentAndRun) {
  const WholeRuns runs;
  const std::string store = (runs / "a store").string();
  runs.train(mlflow_run("experiment_name: 'a: \"b\"', run_name: '1e5: x', tracking_uri: 'file://" + store +
                        "', description: 'a text', tags: {team: llm, n: 3, a/b: true}"),
             "run", 4);
  const auto made = stored_runs_in(store);
  ASSERT_THAT(made, SizeIs(1));
  auto experiment = meta_in(made[0].parent_path()), run = meta_in(made[0]);
  EXPECT_EQ(experiment["name"], "a: \"b\"");
  EXPECT_EQ(experiment["experiment_id"], made[0].parent_path().filename());
  EXPECT_THAT(experiment["artifact_location"], HasSubstr("/a%20store/"));
  EXPECT_EQ(run["run_id"], made[0].filename());
  EXPECT_EQ(run["experiment_id"], experiment["experiment_id"]);
  EXPECT_EQ(run["run_name"], "1e5: x");
  EXPECT_EQ(run["status"], "3");
  EXPECT_GE(std::stoll(run["end_time"]), std::stoll(run["start_time"]));
  EXPECT_EQ(read(made[0] / "tags/mlflow.runName"), "1e5: x");
  EXPECT_EQ(read(made[0] / "tags/mlflow.note.content"), "a text");
  EXPECT_EQ(read(made[0] / "tags/team"), "llm");
  EXPECT_EQ(read(made[0] / "tags/n"), "3");
  EXPECT_EQ(read(made[0] / "tags/a/b"), "true");
  EXPECT_EQ(read(made[0] / "tags/heddle.strategy"), "single");
  EXPECT_EQ(read(made[0] / "params/seed"), "7");
  EXPECT_EQ(read(made[0] / "params/optimizer.weight_decay"), "0.1");
  EXPECT_THAT(read(made[0] / "params/model.config"), HasSubstr("\"vocab_size\": 53"));
  EXPECT_THAT(read(made[0] / "artifacts/config.yaml"), HasSubstr("weight_decay: 0.1"));
  runs.train(mlflow_run("experiment_name: 'a: \"b\"', tracking_uri: " + store + ", flatten_depth: null"),
             "two", 1);
  const auto both = stored_runs_in(store);
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_EQ(both[0].parent_path(), both[1].parent_path());
  const fs::path second = both[0] == made[0] ? both[1] : both[0];
  EXPECT_EQ(read(second / "params/model.config.vocab_size"), "53");
  EXPECT_EQ(meta_in(second)["run_name"], "two");
}

TEST(MLflow, ContinuesItsRunOnResume) {
  const WholeRuns runs;
  runs.train(mlflow_run(""), "run", 6);
  const auto first = stored_runs_in(runs / "run/mlruns");
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(read(runs / "run/mlflow_run_id"), first[0].filename().string() + "\n");
  std::ofstream(first[0] / "metrics/loss", std::ios::app) << "17000";  // killed while writing
  runs.train(mlflow_run(""), "run", 8, "run/epoch_0_step_3");
  EXPECT_EQ(stored_runs_in(runs / "run/mlruns"), first);
  EXPECT_THAT(steps_of(first[0] / "metrics/loss"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(steps_of(first[0] / "metrics/lr"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(meta_in(first[0])["status"], "3");
  EXPECT_EQ(std::distance(fs::directory_iterator(first[0] / "artifacts"), {}), 2);
  runs.train(mlflow_run("resume: false"), "run", 9, "LATEST");
  EXPECT_THAT(stored_runs_in(runs / "run/mlruns"), SizeIs(2));
  EXPECT_THAT(steps_of(first[0] / "metrics/loss"), SizeIs(8));
}

TEST(MLflow, WarnsThatNothingIsSentToAServer) {
  const WholeRuns runs;
  testing::internal::CaptureStderr();
  runs.train(mlflow_run("tracking_uri: 'https://me:secret@host.example', artifact_location: 's3://bucket/x'"),
             "run", 1);
  const std::string said = testing::internal::GetCapturedStderr();
  const auto made = stored_runs_in(runs / "run/mlruns");
  ASSERT_THAT(made, SizeIs(1));
  EXPECT_THAT(said,
              HasSubstr("[mlflow] warning: nothing is sent to mlflow.tracking_uri (https): the run is in "
                        "the file store " +
                        (runs / "run/mlruns").string() + "\n"));
  EXPECT_THAT(said, HasSubstr("nothing is sent to mlflow.artifact_location (s3): artifacts are in " +
                              made[0].string() + "\n"));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("secret")));
  EXPECT_TRUE(fs::exists(made[0] / "artifacts/config.yaml"));
}

TEST(MLflow, IsRefusedIfAnotherFileHasTheNameOfItsId) {
  const WholeRuns runs;
  fs::create_directories(runs / "run");
  std::ofstream(runs / "run/mlflow_run_id") << "my own notes";
  EXPECT_THAT(runs.refusal(mlflow_run(""), "run"),
              HasSubstr("mlflow_run_id exists and contains no id of an MLflow run"));
}

TEST(MLflow, WarnsOnceWhenTheDiskIsFull) {
  const WholeRuns runs;
  runs.train(mlflow_run(""), "run", 4);
  const fs::path loss = stored_runs_in(runs / "run/mlruns").at(0) / "metrics/loss";
  fs::remove(loss);
  fs::create_symlink("/dev/full", loss);
  std::ostringstream said;
  std::streambuf* before = std::cerr.rdbuf(said.rdbuf());
  const Told told = runs.train(mlflow_run(""), "run", 7, "LATEST");
  std::cerr.rdbuf(before);
  EXPECT_THAT(told.steps, SizeIs(7));
  EXPECT_THAT(said.str(), HasSubstr("warning: mlflow gets no more metrics, but the run continues: "));
  EXPECT_THAT(said.str(), HasSubstr("loss cannot be written: No space left on device"));
}

// Another plugin ends the run at its start.
TEST(MLflow, RecordsAFailedRun) {
  const WholeRuns runs;
  std::vector<std::string> refusals;
  runs.train({"run", 1, "{strategy: single}",
              "mlflow: {}\nplugins: [" HEDDLE_BINARY_DIR "/tests/examples/libheddle_template_metrics.so]\n"
              "hello: {file: " +
                  (runs / "train.bin/x").string() + "}"},
             "run", 4, "", &refusals);
  ASSERT_THAT(refusals, SizeIs(1));
  const auto made = stored_runs_in(runs / "run/mlruns");
  ASSERT_THAT(made, SizeIs(1));
  EXPECT_EQ(meta_in(made[0])["status"], "4");
}

}  // namespace
}  // namespace heddle::tests
