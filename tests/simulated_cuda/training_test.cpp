// Trainings on simulated GPUs: equal to the CPU's, without a race, in every order of the work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulated_cuda/trainings.h"

namespace heddle::tests {
namespace {

using simulated::Machine;
using simulated::Policy;

struct WorkOrder {
  Policy policy;
  uint64_t seed;
};
const WorkOrder kOrders[] = {
    {Policy::at_once, 0}, {Policy::late, 0}, {Policy::random, 1}, {Policy::random, 2}};

void expect_equal_on_gpus(const Training& run) {
  const Outcome want = train(run);
  for (const auto& [policy, seed] : kOrders) {
    SCOPED_TRACE(static_cast<int>(policy));
    Machine::get().begin(policy, seed);
    expect_close(train(on_gpus(run)), want);
    EXPECT_THAT(Machine::get().reports(), ::testing::IsEmpty());
    EXPECT_GT(Machine::get().counts().launches, 100);
  }
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderSingle) {
  expect_equal_on_gpus(small());
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderFsdp2) {
  expect_equal_on_gpus(sharded(3));
}

TEST(SimulatedCuda, TrainsAsTheCpuUnderTensorParallelism) {
  expect_equal_on_gpus(over_tp(small(), 2, kSequence));
}

}  // namespace
}  // namespace heddle::tests
