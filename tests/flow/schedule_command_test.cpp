// `heddle schedule`, as users and scripts run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/flow/program.h"

namespace {

using flow::heddle;
using flow::Outcome;
using testing::HasSubstr;

TEST(ScheduleCommand, PrintsATableForPeople) {
  const Outcome outcome = heddle({"schedule", "1F1B", "--ranks", "2", "--microbatches", "3"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("1f1b: 2 ranks, 2 stages, 3 microbatches\n"
                                     "rank 0 0F0 0F1 .   0B0 0F2 0B1 .   0B2  idle 25.0 %, peak 2\n"
                                     "rank 1 .   1F0 1B0 1F1 1B1 1F2 1B2      idle 25.0 %, peak 1\n"));
  EXPECT_EQ(outcome.error, "");
}

TEST(ScheduleCommand, PrintsCsvThatItReadsBack) {
  const Outcome lowered =
      heddle({"schedule", "gpipe", "--ranks", "2", "--microbatches", "2", "--lowered", "--format", "csv"});
  EXPECT_EQ(lowered.out,
            "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\n");
  const std::string path = testing::TempDir() + "heddle_lowered.csv";
  std::ofstream(path) << lowered.out;
  EXPECT_EQ(heddle({"schedule", "--csv", path, "--format", "csv"}).out, lowered.out);
  const Outcome compute =
      heddle({"schedule", "gpipe", "--ranks", "2", "--microbatches", "2", "--format=csv"});
  EXPECT_EQ(compute.out, "0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0,1B1\n");
  std::ofstream(path) << compute.out;
  EXPECT_EQ(heddle({"schedule", "--csv", path, "--lowered", "--format", "csv"}).out, lowered.out);
}

TEST(ScheduleCommand, PrintsJsonAndAPicture) {
  const Outcome json =
      heddle({"schedule", "single", "--ranks", "1", "--microbatches", "2", "--format", "json"});
  EXPECT_THAT(json.out, HasSubstr(R"({"schedule":"single","ranks":1,"stages":1,"microbatches":2,)"
                                  R"("rank_of_stage":[0],"rows":[["0F0","0B0","0F1","0B1"]])"));
  const Outcome svg = heddle({"schedule", "gpipe", "--ranks", "4", "--microbatches", "4", "--format", "svg"});
  EXPECT_TRUE(svg.out.starts_with("<svg "));
  EXPECT_TRUE(svg.out.ends_with("</svg>\n"));
}

TEST(ScheduleCommand, DrawsThePictureOfThePluginsReadme) {
  const Outcome svg = heddle({"schedule", "1f1b", "--ranks", "4", "--microbatches", "8", "--format", "svg"});
  std::ostringstream picture;
  picture << std::ifstream(HEDDLE_SOURCE_DIR "/docs/pictures/1f1b.svg").rdbuf();
  EXPECT_EQ(svg.out, picture.str());
}

TEST(ScheduleCommand, PrintsTheScheduleOfTheExamplePlugin) {
  const Outcome outcome =
      heddle({"schedule", "looped", "--ranks", "2", "--microbatches", "2", "--format", "csv"},
             {"HEDDLE_PLUGIN_PATH=" HEDDLE_BINARY_DIR "/tests/examples"});
  EXPECT_EQ(outcome.out, "0F0,0F1,2F0,2F1,,,2B0,2B1,0B0,0B1\n,1F0,1F1,3F0,3F1,3B0,3B1,1B0,1B1\n")
      << outcome.error;
}

TEST(ScheduleCommand, PrintsTheExampleOfThePage) {
  std::ostringstream example, page;
  example << std::ifstream(HEDDLE_SOURCE_DIR "/examples/schedule/looped.cpp").rdbuf();
  page << std::ifstream(HEDDLE_SOURCE_DIR "/docs/plugins/schedule.md").rdbuf();
  const std::string code = example.str().substr(example.str().find("#include"));
  EXPECT_NE(page.str().find("```cpp\n" + code + "```\n"), std::string::npos);
}

TEST(ScheduleCommand, PrintsTheErrorOfATableAsJson) {
  const std::string path = testing::TempDir() + "heddle_wrong.csv";
  std::ofstream(path) << "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n";
  const Outcome outcome = heddle({"schedule", "--csv", path, "--format", "json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, HasSubstr(R"({"error": {"code": "input", )"));
}

TEST(ScheduleCommand, ComparesAllSchedules) {
  const Outcome outcome = heddle(
      {"schedule", "--compare", "--ranks", "4", "--microbatches", "6", "--limit", "4", "--memory", "3GiB"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(
      outcome.out,
      HasSubstr("4 ranks, 6 microbatches; times of all layers of a rank: F 1, I 1, W 1; a transfer 0\n"
                "schedule       stages  length    idle  peak  transfers  peak memory\n"
                "auto                8"));
  EXPECT_THAT(outcome.out,
              HasSubstr("\n1f1b                4      27  33.3 %     4         36    12.00 GiB\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\ngpipe (4 stages): its peak is above the limit\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("\ndualpipev (8 stages): DualPipeV requires at least as many microbatches as "
                        "stages, but got 6 microbatches and 8 stages.\n"));
  EXPECT_LT(outcome.out.find("\nzb1p "), outcome.out.find("\n1f1b "));
}

TEST(ScheduleCommand, ComparesInJsonForMeasuredTimes) {
  const Outcome outcome = heddle(
      {"schedule", "--compare", "--ranks", "2", "--microbatches", "4", "--times", "1,2,1,0.5", "--json"});
  EXPECT_THAT(outcome.out,
              HasSubstr(R"({"ranks":2,"microbatches":4,"times":{"forward":1.0,"backward_input":2.0,)"
                        R"("backward_weight":1.0,"transfer":0.5},"schedules":[{"schedule":")"));
  EXPECT_THAT(outcome.out, HasSubstr(R"({"schedule":"gpipe","stages":2,"length":21.0,"idle":)"));
  EXPECT_THAT(outcome.out, HasSubstr(R"("peak":4.0,"transfers":8})"));
}

TEST(ScheduleCommand, PlansAutoForTimesAndALimit) {
  const Outcome outcome = heddle({"schedule", "auto", "--ranks", "2", "--stages", "2", "--microbatches", "4",
                                  "--times", "1,1,1,1", "--limit", "3"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("auto: 2 ranks, 2 stages, 4 microbatches\n"));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("peak 4")));
}

TEST(ScheduleCommand, DrawsTheSheetOfTheGuide) {
  const Outcome svg =
      heddle({"schedule", "--compare", "--ranks", "4", "--microbatches", "8", "--format", "svg"});
  std::ostringstream sheet;
  sheet << std::ifstream(HEDDLE_SOURCE_DIR "/docs/pictures/schedules.svg").rdbuf();
  EXPECT_EQ(svg.out, sheet.str());
}

TEST(ScheduleCommand, ReadsTheTimesMeasuredByARun) {
  const std::string trace = testing::TempDir() + "heddle_times.json";
  std::ofstream(trace) << R"({"traceEvents": [], "otherData": {"steps": [{"stages_ms": [
    {"forward": 2, "backward": 5, "backward_input": 0, "backward_weight": 0, "transfer": 0.25},
    {"forward": 6, "backward": 0, "backward_input": 7, "backward_weight": 6, "transfer": 0}]}]}})";
  // Two ranks of one stage: 2 and 6, 2.5 and 7, 2.5 and 6.
  const Outcome run = heddle({"schedule", "1f1b", "--ranks", "2", "--microbatches", "1", "--times-from",
                              trace, "--trace", trace + "2"});
  ASSERT_EQ(run.status, 0) << run.error;
  std::ostringstream written;
  written << std::ifstream(trace + "2").rdbuf();
  EXPECT_THAT(written.str(), HasSubstr("\"length_ms\":26.500"));  // 2 + 0.25 + 6 + 13 + 0.25 + 5
  // The mean of the ranks, split into four stages: 1, 1, 3, 3.
  const Outcome compared =
      heddle({"schedule", "--compare", "--ranks", "2", "--microbatches", "4", "--times-from", trace});
  EXPECT_THAT(compared.out,
              HasSubstr("2 ranks, 4 microbatches; times of all layers of a rank (mean, in ms, of " + trace +
                        "): F 4, I 4.75, W 4.25; a transfer 0.25\n"));
  std::filesystem::remove(trace);
}

TEST(ScheduleCommand, HelpListsTheOptions) {
  const Outcome outcome = heddle({"schedule", "--help"});
  for (const char* option : {"--ranks", "--stages", "--microbatches", "--lowered", "--format", "--csv",
                             "--compare", "--times", "--limit", "--memory", "--json"})
    EXPECT_THAT(outcome.out, HasSubstr(option));
}

}  // namespace
