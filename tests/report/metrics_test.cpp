// Metrics lines, the progress line and the loss curve.
#include "lib/report/metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <sstream>

#include "heddle/base/error.h"
#include "lib/cost/peak_memory.h"
#include "lib/data/mapped_file.h"
#include "lib/report/loss_curve.h"
#include "lib/report/progress.h"
#include "tests/data/token_files.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TrainingRecord record() {
  TrainingRecord out;
  out.step = 11;
  out.loss = 0.1;
  out.grad_norm = 1.25;
  out.lr = 0.001;
  out.mem = 0.5;
  out.tps = 12345;
  out.tps_per_gpu = 6172.5;
  out.num_tokens_per_step = 512;
  out.num_label_tokens = 500;
  out.step_time = 0.25;
  return out;
}

TEST(Metrics, HaveThePromisedKeysInOrder) {
  EXPECT_EQ(
      to_json(record(), "T"),
      R"({"step":11,"epoch":0,"timestamp":"T","loss":0.1,"grad_norm":1.25,"lr":0.001,"skipped":false,"mem":0.5,)"
      R"("tps":12345.0,"tps_per_gpu":6172.5,"mfu":null,"tflops":null,"num_tokens_per_step":512,"num_label_tokens":500,)"
      R"("step_time":0.25})");
}

TEST(Metrics, SayTheShareOfPadding) {
  TrainingRecord padded = record();
  padded.padding = 0.375;
  EXPECT_THAT(to_json(padded, "T"), HasSubstr(R"("num_label_tokens":500,"padding":0.375,"step_time":0.25})"));
  EXPECT_THAT(progress_line(padded, 300, 130), HasSubstr("12.3k tok/s (38% padding)"));
  EXPECT_THAT(progress_line(record(), 300, 130), Not(HasSubstr("padding")));
}

TEST(Metrics, LossesAndMetricsOfPluginsFollow) {
  TrainingRecord with = record();
  with.sides = {{"moe/aux_loss", {1.0625}}, {"moe/tokens", {3, 5}, false}, {"moe/cv", {0.25}, false}};
  EXPECT_THAT(to_json(with, "T"),
              HasSubstr(R"("step_time":0.25,"moe/aux_loss":1.0625,"moe/tokens":[3.0,5.0],"moe/cv":0.25})"));
  const std::string whole = progress_line(with, 300, 130);
  EXPECT_EQ(whole, progress_line(record(), 300, 130) + "  moe/aux_loss 1.062");
  EXPECT_EQ(progress_line(with, 300, 130, whole.size() - 1), progress_line(record(), 300, 130));
}

TEST(Metrics, TellTimeInUtcWithMilliseconds) {
  EXPECT_THAT(timestamp_now(), ::testing::MatchesRegex("....-..-..T..:..:..\\.[0-9][0-9][0-9]Z"));
}

TEST(LinesFile, AppendsAndMakesItsDirectory) {
  ScratchDirectory scratch;
  const auto file = scratch / "new/dir/training.jsonl";
  LinesFile(file).append("one");
  LinesFile(file).append("two");
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str(), "one\ntwo\n");
}

TEST(LinesFile, SaysThatADiskIsFull) {
  LinesFile full("/dev/full");
  EXPECT_THAT(
      tests::thrown_by([&] { full.append("line"); }),
      ::testing::AllOf(
          HasSubstr("error[io]"),
          HasSubstr("/dev/full: cannot be written: No space left on device\n  hint: free disk space")));
}

TEST(LinesFile, SaysThatItCannotBeOpened) {
  ScratchDirectory scratch;
  std::ofstream(scratch / "file") << "x";
  EXPECT_THAT(tests::thrown_by([&] { LinesFile lines(scratch / "file/training.jsonl"); }),
              HasSubstr("error[io]"));
}

TEST(PeakMemory, IsWhatWasHeldWithoutMappedFiles) {
  ScratchDirectory scratch;
  constexpr size_t kBytes = 256u << 20;
  constexpr double kGib = 0.25;
  std::ofstream(scratch / "file") << std::string(kBytes, 'x');
  const PeakMemory peak;
  const double before = peak.gib();
  EXPECT_GT(before, 0.005);
  size_t sum = 0;
  {
    const MappedFile file(scratch / "file");
    for (size_t at = 0; at < kBytes; at += 4096) sum += file.bytes()[at] == std::byte{'x'};
    EXPECT_LT(peak.gib(), before + kGib / 2);
  }
  EXPECT_EQ(sum, kBytes / 4096);
  { const std::string held(kBytes, 'y'); }
  EXPECT_GT(peak.gib(), before + kGib / 2);  // freed memory still counts in the peak
}

TEST(Progress, ShowsStepLossNormRateSpeedMemoryAndTimeLeft) {
  EXPECT_EQ(progress_line(record(), 300, 130),
            "step 12/300  loss 0.1000  norm 1.250  lr 1.00e-03  12.3k tok/s  512.00 MiB  2m 10s left");
}

TEST(Progress, IsNoWiderThanTheTerminal) {
  const std::string whole = progress_line(record(), 300, 130);
  EXPECT_EQ(progress_line(record(), 300, 130, whole.size()), whole);
  EXPECT_EQ(progress_line(record(), 300, 130, 79),
            "step 12/300  loss 0.1000  norm 1.250  lr 1.00e-03  12.3k tok/s  2m 10s left");
  EXPECT_EQ(progress_line(record(), 300, 130, 60), "step 12/300  loss 0.1000  12.3k tok/s  2m 10s left");
  EXPECT_EQ(progress_line(record(), 300, 130, 30), "step 12/300  loss 0.1000");
  EXPECT_EQ(progress_line(record(), 300, 130, 4), "step");
}

TEST(Progress, WritesOverOneLineOnATerminal) {
  std::ostringstream out;
  std::atomic<bool> open = false;
  Progress progress({out, [] { return size_t{80}; }, open}, 300);
  progress.show(record());
  EXPECT_TRUE(open);
  progress.note("saved");
  EXPECT_FALSE(open);
  EXPECT_THAT(out.str(), ::testing::StartsWith("\rstep 12/300"));
  EXPECT_THAT(out.str(), ::testing::EndsWith("1m 12s left\033[K\nsaved\n"));
  progress.show(record());
  open = false;  // a message has ended the line
  progress.finish();
  EXPECT_THAT(out.str(), ::testing::EndsWith("left\033[K"));
}

// The result overwrites the validation's progress line. The line of the step before stays.
TEST(Progress, ShowsHowFarAValidationIs) {
  std::ostringstream out;
  std::atomic<bool> open = false;
  Progress progress({out, [] { return size_t{80}; }, open}, 300);
  progress.show(record());
  progress.validating("books", 0, 64);
  progress.validating("books", 32, 64);
  EXPECT_TRUE(open);
  EXPECT_THAT(out.str(), ::testing::EndsWith("1m 12s left\033[K\n\rvalidation books  0/64 samples\033[K"
                                             "\rvalidation books  32/64 samples\033[K"));
  out.str("");
  progress.note("validation books  step 12  loss 1.0");
  EXPECT_EQ(out.str(), "\r\033[Kvalidation books  step 12  loss 1.0\n");
  EXPECT_FALSE(open);
}

TEST(Progress, IsSilentForAShortValidationWithoutATerminal) {
  std::ostringstream out;
  std::atomic<bool> open = false;
  Progress progress({out, {}, open}, 300);
  progress.validating("", 0, 64);
  progress.validating("", 32, 64);
  EXPECT_EQ(out.str(), "");
}

TEST(Progress, WritesPlainLinesElsewhere) {
  std::ostringstream out;
  std::atomic<bool> open = false;
  Progress progress({out, {}, open}, 300);
  progress.show(record());
  TrainingRecord last = record();
  last.step = 299;
  progress.show(last);
  EXPECT_FALSE(open);
  EXPECT_THAT(out.str(), Not(HasSubstr("\r")));
  EXPECT_THAT(out.str(), HasSubstr("step 12/300"));
  EXPECT_THAT(out.str(), HasSubstr("step 300/300"));
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(LossCurve, DrawsTrainingAndValidation) {
  std::vector<CurvePoint> training;
  for (int64_t step = 0; step < 5000; ++step)
    training.push_back({step, 5.0 - static_cast<double>(step) / 2000});
  const std::string svg = loss_curve_svg(training, {{"", {{2499, 4.0}, {4999, 3.0}}}});
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr(">validation, last 3.000<"));
  EXPECT_THAT(svg, HasSubstr("loss (nats a token)"));
  EXPECT_LT(svg.size(), 60000u);
}

// The curve shows the last loss and the mean loss.
TEST(LossCurve, ShowsTheLastLossAndTheMean) {
  std::vector<CurvePoint> training;
  for (int64_t step = 0; step < 100; ++step) training.push_back({step, 4.0});
  training.back().loss = 2.0;
  EXPECT_THAT(loss_curve_svg(training, {}), HasSubstr(">training, last 2.000, mean 3.000<"));
  training.push_back({100, 9.0, true});
  EXPECT_THAT(loss_curve_svg(training, {}), HasSubstr(">training, last 2.000, mean 3.010<"));
}

TEST(LossCurve, DrawsEachValidationSetInAColourOfItsOwn) {
  const std::vector<CurvePoint> training = {{0, 4.0}, {1, 3.0}};
  const std::string svg = loss_curve_svg(
      training, {{"", {{1, 3.5}}}, {"books", {{0, 5.0}, {1, 4.5}}}, {"a<b", {{1, 2.5}}}, {"none", {}}});
  EXPECT_THAT(svg, HasSubstr(">validation, last 3.500<"));
  EXPECT_THAT(svg, HasSubstr(">validation books, last 4.500<"));
  EXPECT_THAT(svg, HasSubstr(">validation a&lt;b, last 2.500<"));
  EXPECT_THAT(svg, Not(HasSubstr("validation none")));
  std::set<std::string> colours;
  for (size_t at = svg.find("<circle"); at != svg.npos; at = svg.find("<circle", at + 1))
    colours.insert(svg.substr(svg.find("fill=", at), 14));
  EXPECT_EQ(colours.size(), 3u);
  EXPECT_EQ(count_of(svg, "<circle"), 4u);
}

TEST(LossCurve, LeavesOutLossesThatAreNotFinite) {
  EXPECT_THAT(loss_curve_svg({{0, std::nan("")}, {1, 2.0}}, {}), Not(HasSubstr("nan")));
  EXPECT_THAT(loss_curve_svg({{0, std::nan("")}}, {}), HasSubstr("No finite loss"));
}

TEST(LossCurve, HasAGapWhereLossesAreNotFiniteAndMarksSkippedUpdates) {
  std::vector<CurvePoint> training;
  for (int64_t step = 0; step < 100; ++step) training.push_back({step, 3.0});
  const std::string whole = loss_curve_svg(training, {});
  EXPECT_EQ(count_of(whole, "<polyline"), 2u);  // losses and mean
  EXPECT_THAT(whole, Not(HasSubstr("skipped")));
  for (const int64_t step : {40, 41, 90}) training[step] = {step, std::nan(""), true};
  training[70].skipped = true;  // finite loss, but non-finite gradient
  const std::string svg = loss_curve_svg(training, {});
  EXPECT_EQ(count_of(svg, "<polyline"), 8u);
  EXPECT_EQ(count_of(svg, "<rect"), 1u + 4u);
  EXPECT_THAT(svg, HasSubstr("skipped, 4"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  // The x axis includes the last steps although their losses are NaN.
  for (int64_t step = 100; step < 200; ++step) training.push_back({step, std::nan(""), true});
  EXPECT_THAT(loss_curve_svg(training, {}), HasSubstr(">200</text>"));
}

}  // namespace
}  // namespace heddle
