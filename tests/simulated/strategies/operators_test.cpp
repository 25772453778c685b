// Every registered operator on a simulated GPU gives the CPU's results without a race.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/simulated/current.h"
#include "lib/simulated/device_ops.h"
#include "operators/operator.h"

namespace heddle::tests {

void PrintTo(const Operator& one, std::ostream* out) {
  *out << one.name;
}

namespace {

using simulated::Machine;
using simulated::Policy;

class SimulatedOperators : public ::testing::TestWithParam<Operator> {
 protected:
  void SetUp() override {
    simulated::set_current_device(0);
    simulated::offer_device_ops();
  }
};

bool is_skipped(const OperatorCase& one, OperatorCheck check) {
  return one.skipped.contains(check) || SimulatedOperators::GetParam().skipped.contains(check);
}

void expect_result_of_cpu(const OperatorCase& one, at::ScalarType dtype, double tolerance) {
  const OperatorResult want = run_operator(one.run, draw_inputs(one, dtype, at::kCPU), one.constants);
  for (const auto& [policy, seed] : {std::pair{Policy::late, 0}, {Policy::random, 1}}) {
    Machine::get().begin(policy, seed);
    const at::Device gpu(at::kCUDA, 0);
    const OperatorTensors inputs = draw_inputs(one, dtype, gpu), constants = move_constants(one, gpu);
    expect_results(run_operator(one.run, inputs, constants), want, tolerance);
    EXPECT_THAT(Machine::get().reports(), ::testing::IsEmpty());
    EXPECT_GT(Machine::get().counts().launches, 0);
  }
}

TEST_P(SimulatedOperators, GiveTheResultsOfTheCpu) {
  for (const OperatorCase& one : GetParam().cases) {
    if (is_skipped(one, OperatorCheck::simulated)) continue;
    SCOPED_TRACE(one.name);
    expect_result_of_cpu(one, at::kFloat, 1e-5);
    if (is_skipped(one, OperatorCheck::bfloat16)) continue;
    SCOPED_TRACE("in bfloat16");
    expect_result_of_cpu(one, at::kBFloat16, GetParam().narrow_tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, SimulatedOperators, ::testing::ValuesIn(operators()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
