// TFLOP/s and MFU of a step.
#include "lib/cost/mfu.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "lib/report/progress.h"
#include "tests/quiet.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

// Returns the record of a step with 4096 tokens in 0.5 s.
TrainingRecord step_with(const ModelFlops& flops) {
  TrainingRecord record;
  record.num_tokens_per_step = 4096;
  record.step_time = 0.5;
  if (const auto rate = flops.rate(4096, 0.5)) {
    record.tflops = rate->tflops;
    record.mfu = rate->mfu;
  }
  return record;
}

TEST(Mfu, IsTheShareOfThePeakOfEachRank) {
  const TrainingRecord record = step_with(ModelFlops(6e9, 4, {30e12, "given"}));
  EXPECT_DOUBLE_EQ(*record.tflops, 6e9 * 4096 / 0.5 / 4 / 1e12);
  EXPECT_DOUBLE_EQ(*record.mfu, *record.tflops / 30 * 100);
  EXPECT_THAT(to_json(record, "T"), HasSubstr("\"tflops\":12.288"));
  EXPECT_THAT(progress_line(record, 10, 5), HasSubstr("  12.3 TFLOP/s (41.0% MFU)  "));
}

TEST(Mfu, IsEmptyWhereThePeakIsNotKnown) {
  const ModelFlops flops(6e9, 4, peak_flops({}, c10::DeviceType::CUDA, "Some Other GPU", at::kFloat));
  const TrainingRecord record = step_with(flops);
  EXPECT_FALSE(record.mfu);
  EXPECT_TRUE(record.tflops);
  EXPECT_EQ(flops.text(),
            "6 GFLOP per token, forward and backward; peak per rank unknown: set it with --peak-flops");
  EXPECT_THAT(progress_line(record, 10, 5), HasSubstr("  12.3 TFLOP/s  "));
  EXPECT_FALSE(ModelFlops().rate(1, 1));
}

TEST(Mfu, TakesThePeakOfAGpuByNameAndDtype) {
  const auto peak = [](const char* name, at::ScalarType dtype) {
    return peak_flops({}, c10::DeviceType::CUDA, name, dtype);
  };
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3", at::kBFloat16).flops, 989e12);
  EXPECT_EQ(peak("NVIDIA H200", at::kBFloat16).flops, 989e12);
  EXPECT_EQ(peak("NVIDIA H20", at::kBFloat16).flops, 148e12);
  EXPECT_EQ(peak("NVIDIA GB200", at::kBFloat16).flops, 2500e12);
  EXPECT_EQ(peak("NVIDIA B200", at::kHalf).flops, 2250e12);
  EXPECT_EQ(peak("NVIDIA A100-SXM4-80GB", at::kFloat).flops, 19.5e12);
  EXPECT_EQ(peak("NVIDIA A40", at::kHalf).flops, 149.7e12);
  EXPECT_EQ(peak("NVIDIA RTX A4000", at::kHalf).flops, 0);
  EXPECT_EQ(peak("NVIDIA L40S", at::kHalf).source, "L40S in 16 bits");
  EXPECT_EQ(peak_flops(5e12, c10::DeviceType::CUDA, "NVIDIA H100", at::kFloat).flops, 5e12);
}

TEST(Mfu, MeasuresACpuInAMoment) {
  const auto begin = std::chrono::steady_clock::now();
  const PeakFlops peak = peak_flops({}, c10::DeviceType::CPU, "", at::kFloat);
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::seconds(tests::machine_is_quiet() ? 2 : 60));
  EXPECT_GT(peak.flops, tests::machine_is_quiet() ? 1e8 : 1e6);
  EXPECT_EQ(peak.source, "measured");
}

// Busy threads on every core change the measured peak by less than a factor of 4.
TEST(Mfu, IsTheSameOnABusyCpu) {
  const auto measured = [] { return peak_flops({}, c10::DeviceType::CPU, "", at::kFloat).flops; };
  const double quiet = measured();
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 4 * std::max(1u, std::thread::hardware_concurrency()); ++i)
    others.emplace_back([&] {
      while (!done) {
      }
    });
  std::vector<double> busy;
  for (int i = 0; i < 3; ++i) busy.push_back(measured());
  done = true;
  for (std::thread& other : others) other.join();
  for (const double peak : busy) {
    EXPECT_GT(peak, quiet / 4);
    EXPECT_LT(peak, quiet * 4);
  }
}

TEST(Mfu, IsEmptyWhereItWouldBeAboveAHundred) {
  const TrainingRecord record = step_with(ModelFlops(6e9, 1, {40e12, "measured"}));
  EXPECT_FALSE(record.mfu);
  EXPECT_TRUE(record.tflops);
}

TEST(Mfu, CountsNoGradientsOfFrozenParameters) {
  EXPECT_DOUBLE_EQ(trained_share(10, 0), 1);
  EXPECT_DOUBLE_EQ(trained_share(10, 10), 2.0 / 3);
  EXPECT_DOUBLE_EQ(trained_share(0, 0), 1);
}

}  // namespace
}  // namespace heddle
