// Mistakes of a communicator in a training: each is reported with both places.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "simulated_cuda/trainings.h"

namespace heddle::tests {
namespace {

using simulated::Machine;
using simulated::Mistake;
using simulated::Policy;

struct SeededCase {
  const char* name;
  simulated::Seeded seeded;
  bool tensor = false;  // the training over tp; else fsdp2
};

class SeededMistake : public ::testing::TestWithParam<SeededCase> {};

TEST_P(SeededMistake, IsReportedByTheNamesOfBothPlaces) {
  Machine::get().begin(Policy::at_once);
  simulated::set_mistake(GetParam().seeded);
  Training run = GetParam().tensor ? over_tp(small_on_gpus(), 2, kSequence) : sharded_on_gpus(2);
  run.steps = 2;
  {
    ::testing::TestPartResultArray wrong_numbers;  // which a mistake may give, or not, by chance
    const ::testing::ScopedFakeTestPartResultReporter apart(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &wrong_numbers);
    train(run);
  }
  simulated::set_mistake({});
  const std::string operation = GetParam().seeded.operation + " on ";
  EXPECT_THAT(Machine::get().reports(), ::testing::Contains(::testing::AllOf(
                                            ::testing::HasSubstr("race: "), ::testing::HasSubstr(operation),
                                            ::testing::HasSubstr(" of cuda:0"))));
}

INSTANTIATE_TEST_SUITE_P(
    SimulatedCuda, SeededMistake,
    ::testing::Values(
        SeededCase{"gather_too_early", {Mistake::compute_not_awaited, "all_gather", 5}},
        SeededCase{"gather_not_waited_for", {Mistake::wait_dropped, "all_gather", 0}},
        SeededCase{"gather_without_event", {Mistake::event_not_recorded, "all_gather", 1}},
        SeededCase{"gather_on_wrong_stream", {Mistake::wrong_stream, "all_gather", 2}},
        SeededCase{"scatter_too_early", {Mistake::compute_not_awaited, "reduce_scatter", 0}},
        SeededCase{"scatter_not_waited_for", {Mistake::wait_dropped, "reduce_scatter", 0}},
        SeededCase{"scatter_without_event", {Mistake::event_not_recorded, "reduce_scatter", 1}},
        SeededCase{"scatter_on_wrong_stream", {Mistake::wrong_stream, "reduce_scatter", 1}},
        SeededCase{"norm_too_early", {Mistake::compute_not_awaited, "all_reduce", 1}},
        SeededCase{"norm_not_waited_for", {Mistake::wait_dropped, "all_reduce", 0}},
        SeededCase{"tp_gather_too_early", {Mistake::compute_not_awaited, "all_gather", 0}, true},
        SeededCase{"tp_gather_not_waited_for", {Mistake::wait_dropped, "all_gather", 1}, true},
        SeededCase{"tp_scatter_without_event", {Mistake::event_not_recorded, "reduce_scatter", 0}, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
