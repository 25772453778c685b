// The trace of a run: one file, one process per rank, nested spans, and the pipeline's idle share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "flow/stops/started.h"
#include "training_files.h"

namespace flow {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const Words kStagesAndShards = {
    "--nproc-per-node",
    "4",
    "--distributed",
    "{strategy: fsdp2, pp_size: 2, pipeline: {pp_schedule: zb1p}, mp_policy: {param_dtype: float32, "
    "reduce_dtype: float32}}",
    "--step_scheduler.local_batch_size",
    "4"};

json trace_in(const std::string& file) {
  return json::parse(std::ifstream(file));
}

using Lane = std::pair<int, int>;  // process, thread
struct TraceSpan {
  int64_t begin, end;  // nanoseconds
  std::string name, category;
};

std::map<Lane, std::vector<TraceSpan>> spans_of(const json& trace) {
  std::map<Lane, std::vector<TraceSpan>> lanes;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const int64_t begin = std::llround(1e3 * event["ts"].get<double>());
    lanes[Lane(event["pid"].get<int>(), event["tid"].get<int>())].push_back(
        {begin, begin + std::llround(1e3 * event["dur"].get<double>()), event["name"].get<std::string>(),
         event["cat"].get<std::string>()});
  }
  return lanes;
}

void expect_nested(std::vector<TraceSpan> spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& one, const TraceSpan& two) {
    return std::pair(one.begin, -one.end) < std::pair(two.begin, -two.end);
  });
  std::vector<TraceSpan> open;
  for (const TraceSpan& span : spans) {
    while (!open.empty() && open.back().end <= span.begin) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(span.end, open.back().end) << span.name << " in " << open.back().name;
    }
    open.push_back(span);
  }
}

std::multiset<std::string> named(const std::vector<TraceSpan>& spans, const std::string& category) {
  std::multiset<std::string> names;
  for (const TraceSpan& span : spans)
    if (span.category == category) names.insert(span.name);
  return names;
}

// The trace is in checkpoint_dir, which the run creates.
TEST(Trace, HoldsEveryActionOfEveryRank) {
  const TrainingFiles files;
  const std::string file = files.path("run/trace.json");
  const Outcome run = heddle(files.train("run", plus(kStagesAndShards, {"--trace", file})));
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("  trace   " + file +
                                 ": steps 2 to 3 of 4 ranks; open it in "
                                 "ui.perfetto.dev\n          step 2: the pipeline is idle "));
  const json trace = trace_in(file);
  const auto lanes = spans_of(trace);
  for (int rank = 0; rank < 4; ++rank) {
    const auto& spans = lanes.at({rank, 0});
    expect_nested(spans);
    std::multiset<std::string> want;
    for (int step = 0; step < 2; ++step)
      for (const char* kind : {"F", "I", "W"})
        for (int at = 0; at < 4; ++at) want.insert(std::to_string(rank / 2) + kind + std::to_string(at));
    EXPECT_EQ(named(spans, "compute"), want);
    EXPECT_EQ(named(spans, "step"), (std::multiset<std::string>{"step 2", "step 3"}));
    for (const char* name : {"read data", "schedule", "reduce", "norm", "update"})
      EXPECT_EQ(named(spans, "phase").count(name), 2u) << name;
    EXPECT_GT(named(spans, "wait").count("wait all_gather dp_shard"), 0u);
    EXPECT_GT(named(spans, "wait").count("wait receive pp"), 0u);
  }
  EXPECT_GT(named(lanes.at({1'000'000, 0}), "compute").count("0F0"), 0u);  // the simulation
}

TEST(Trace, ComparesTheRunWithItsSimulation) {
  const TrainingFiles files;
  const std::string file = files.path("trace.json");
  ASSERT_EQ(
      heddle(files.train("run", plus(kStagesAndShards, {"--trace", file, "--trace-steps", "4"}))).status, 0);
  const json about = trace_in(file)["otherData"];
  EXPECT_EQ(about["schedule"], "zb1p");
  EXPECT_EQ(about["rank_of_stage"], json({0, 1}));
  ASSERT_EQ(about["steps"].size(), 1u);
  const json& step = about["steps"][0];
  EXPECT_EQ(step["step"], 4);
  EXPECT_EQ(step["microbatches"], 4);
  for (const char* share : {"idle", "simulated_idle"}) {
    ASSERT_EQ(step[share].size(), 2u);
    for (const json& one : step[share]) {
      EXPECT_GT(one.get<double>(), 0);
      EXPECT_LT(one.get<double>(), 1);
    }
  }
  for (const json& stage : step["stages_ms"]) {
    EXPECT_GT(stage["forward"].get<double>(), 0);
    EXPECT_GT(stage["backward_input"].get<double>(), 0);
    EXPECT_GT(stage["backward_weight"].get<double>(), 0);
    EXPECT_EQ(stage["backward"].get<double>(), 0);
  }
}

TEST(Trace, RecordsTheOperatorsOfOneRankOnRequest) {
  const TrainingFiles files;
  const std::string file = files.path("trace.json");
  const Outcome run = heddle(
      files.train("run", {"--distributed", "{strategy: single}", "--trace", file, "--trace-operators"}));
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_EQ(run.error, "");
  const auto lanes = spans_of(trace_in(file));
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_GT(named(lanes.at({0, 1000}), "operator").count("aten::transpose"), 0u);
  // The two clocks agree: operators are inside the steps.
  const auto& steps = lanes.at({0, 0});
  for (const TraceSpan& span : lanes.at({0, 1000})) {
    EXPECT_GT(span.begin, steps.front().begin - 1'000'000);
  }
}

TEST(Trace, LeavesTheNumbersUnchanged) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("plain", kStagesAndShards)).status, 0);
  ASSERT_EQ(
      heddle(files.train("traced", plus(kStagesAndShards, {"--trace", files.path("trace.json")}))).status, 0);
  EXPECT_EQ(column(files.path("traced/training.jsonl"), "loss"),
            column(files.path("plain/training.jsonl"), "loss"));
  EXPECT_EQ(column(files.path("traced/training.jsonl"), "grad_norm"),
            column(files.path("plain/training.jsonl"), "grad_norm"));
}

TEST(Trace, IsWrittenWhenTheRunEndsEarly) {
  const TrainingFiles files;
  const std::string file = files.path("trace.json");
  const Outcome run = heddle(files.train("run", {"--trace", file, "--trace-steps", "11-40"}));
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("trace   " + file + ": steps 11 to 12 of 1 rank;"));
  const Outcome none = heddle(files.train("more", {"--trace", file, "--trace-steps", "40"}));
  EXPECT_THAT(none.out, HasSubstr(file + ": no step: the run ended before the first one to trace"));
}

TEST(Trace, RefusesAnUnwritablePathBeforeTheRun) {
  const TrainingFiles files;
  EXPECT_EQ(heddle(files.train("run", {"--trace", "/proc/trace"})).error,
            "error[io] --trace: the file /proc/trace cannot be written\n"
            "  hint: its directory must exist and be writable\n");
  EXPECT_FALSE(std::filesystem::exists(files.path("run/training.jsonl")));
  const Outcome steps = heddle(files.train("run", {"--trace", "t", "--trace-steps", "5-3"}));
  EXPECT_EQ(steps.status, 2);
  EXPECT_THAT(steps.error, HasSubstr("expected a step or a range such as 3 or 3-5, got '5-3'"));
}

TEST(Trace, ReplacesOnlyATrace) {
  const TrainingFiles files;
  const std::string trace = files.path("trace.json"), metrics = files.path("metrics.jsonl"),
                    table = files.path("table.csv"), before = read_text(files.path("run.yaml"));
  const Words named = {"--trace", trace, "--metrics", metrics, "--step_scheduler.max_steps"};
  ASSERT_EQ(heddle(files.train("run", plus(named, {"3"}))).status, 0);
  const Outcome again = heddle(files.train("run", plus(named, {"6"})));
  ASSERT_EQ(again.status, 0) << again.error;  // with all files that the first run left
  EXPECT_EQ(column(metrics, "step").size(), 6u);
  EXPECT_EQ(heddle(files.train("run", {"--trace", files.path("run.yaml")})).status, 2);
  files.write("mine.json", "mine");
  files.write("table.csv",
              heddle({"schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--format", "csv"}).out);
  const Words schedule = {"schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--trace"};
  EXPECT_EQ(heddle(plus(schedule, {trace})).status, 0);
  const auto refusal = [&](const Words& words) {
    const Outcome refused = heddle(words);
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(refused.out, "");
    return refused.error;
  };
  EXPECT_EQ(refusal(plus(schedule, {files.path("mine.json")})),
            "error[usage] --trace: " + files.path("mine.json") +
                " exists and contains no trace of heddle\n  hint: choose a file that does not exist\n");
  EXPECT_THAT(refusal({"schedule", "--csv", table, "--trace", table}),
              HasSubstr(table + " is the table of --csv itself, which would be lost"));
  EXPECT_THAT(refusal(plus(schedule, {trace, "--times-from", trace})),
              HasSubstr(trace + " is the trace of --times-from itself, which would be lost"));
  EXPECT_EQ(read_text(files.path("run.yaml")), before);
  EXPECT_EQ(read_text(files.path("mine.json")), "mine");
}

TEST(Trace, EqualsTheSimulationOfASchedule) {
  const std::string file = ::testing::TempDir() + "heddle_schedule_trace.json";
  const Outcome outcome = heddle({"schedule", "zbvzerobubble", "--ranks", "2", "--microbatches", "4",
                                  "--times", "2,2,2,0.5", "--trace", file});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const json trace = trace_in(file);
  EXPECT_EQ(trace["otherData"]["sizes"], "2 ranks, 4 stages, 4 microbatches");
  const auto lanes = spans_of(trace);
  for (int rank = 0; rank < 2; ++rank) {
    int64_t work = 0;
    for (const TraceSpan& span : lanes.at({rank, 0}))
      if (span.category == "compute") work += span.end - span.begin;
    EXPECT_EQ(work, 4 * 6'000'000);  // four microbatches of 2 + 2 + 2 milliseconds
  }
}

}  // namespace
}  // namespace flow
