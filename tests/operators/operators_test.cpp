// Checks every operator of the registry: reference formula, finite differences, shapes and cost on meta,
// bfloat16, recomputation, partly frozen inputs, and views.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>

#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/device_ops.h"
#include "heddle/ops/compute_log.h"
#include "operators/operator.h"

namespace heddle::tests {

void PrintTo(const Operator& one, std::ostream* out) {
  *out << one.name;
}

namespace {

OperatorTensors to_double(const OperatorTensors& inputs) {
  OperatorTensors out;
  for (const at::Tensor& input : inputs)
    out.push_back(input.detach().to(at::kDouble).set_requires_grad(input.requires_grad()));
  return out;
}

class Operators : public ::testing::TestWithParam<Operator> {
 protected:
  // The comparison with the formula uses all threads. All other checks use one thread.
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override {
    at::set_num_threads(threads_);
    if (!reason_.empty()) GTEST_SKIP() << reason_;
  }

  const int threads_ = at::get_num_threads();
  std::string reason_;  // why the check is skipped

  // Returns the cases that the check applies to. If there are none, the test is skipped with the reason.
  std::vector<OperatorCase> cases_of(OperatorCheck check) {
    std::vector<OperatorCase> out;
    if (GetParam().skipped.contains(check)) {
      reason_ = GetParam().skipped.at(check);
      return out;
    }
    for (const OperatorCase& one : GetParam().cases)
      if (!one.skipped.contains(check)) out.push_back(one);
    return out;
  }
};

TEST_P(Operators, EqualTheirFormula) {
  for (const OperatorCase& one : cases_of(OperatorCheck::formula)) {
    ASSERT_TRUE(one.plain) << one.name;
    const OperatorResult want =
        run_operator(one.plain, draw_inputs(one, at::kDouble, at::kCPU), one.constants);
    at::set_num_threads(threads_);
    for (const auto& [dtype, tolerance] : {std::pair{at::kDouble, 1e-11}, {at::kFloat, 1e-5}}) {
      SCOPED_TRACE(one.name + " in " + c10::toString(dtype));
      expect_results(run_operator(one.run, draw_inputs(one, dtype, at::kCPU), one.constants), want,
                     tolerance);
    }
    at::set_num_threads(1);
  }
}

double weighted_sum(const OperatorTensors& outputs) {
  double sum = 0;
  for (const at::Tensor& y : outputs)
    if (y.is_floating_point())
      sum += (y * at::arange(1, y.numel() + 1, at::kDouble).sin().view(y.sizes())).sum().item<double>();
  return sum;
}

// Uses one random direction for inputs 0, 2, ... and one for inputs 1, 3, ....
TEST_P(Operators, HaveTheGradientOfFiniteDifferences) {
  constexpr double kStep = 1e-6;
  for (const OperatorCase& one : cases_of(OperatorCheck::gradient)) {
    const OperatorTensors inputs = draw_inputs(one, at::kDouble, at::kCPU);
    const OperatorResult result = run_operator(one.run, inputs, one.constants);
    const at::NoGradGuard no_gradients;
    for (size_t first = 0; first < std::min<size_t>(2, inputs.size()); ++first) {
      SCOPED_TRACE(one.name + (first == 0 ? ", even inputs" : ", odd inputs"));
      OperatorTensors along;
      double slope = 0, size = 1;
      for (size_t i = 0; i < inputs.size(); ++i) {
        along.push_back(at::randn_like(inputs[i]) * (i % 2 == first ? 1 : 0));
        slope += (result.gradients[i] * along[i]).sum().item<double>();
        size += (result.gradients[i] * along[i]).abs().sum().item<double>();
      }
      const auto moved = [&](double step) {
        OperatorTensors near;
        for (size_t i = 0; i < inputs.size(); ++i) near.push_back(inputs[i] + along[i] * step);
        return weighted_sum(one.run(near, one.constants));
      };
      EXPECT_NEAR(slope, (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-7 * size);
    }
  }
}

// Collects the names of the autograd nodes between outputs and inputs.
std::set<std::string> nodes_of(const OperatorTensors& outputs) {
  std::set<std::string> names;
  std::vector<const torch::autograd::Node*> waiting;
  for (const at::Tensor& output : outputs)
    if (output.requires_grad()) waiting.push_back(output.grad_fn().get());
  while (!waiting.empty()) {
    const torch::autograd::Node* node = waiting.back();
    waiting.pop_back();
    names.insert(node->name());
    for (const torch::autograd::Edge& edge : node->next_edges())
      if (edge.is_valid()) waiting.push_back(edge.function.get());
  }
  return names;
}

TEST_P(Operators, HaveTheirNodes) {
  for (const OperatorCase& one : GetParam().cases) {
    const OperatorTensors outputs = one.run(draw_inputs(one, at::kFloat, at::kCPU), one.constants);
    const std::set<std::string> names = nodes_of(outputs);
    EXPECT_EQ(names.empty(), GetParam().nodes.empty()) << one.name;
    for (const std::string& node : GetParam().nodes)
      EXPECT_TRUE(names.contains(node)) << one.name << " lacks " << node;
  }
}

struct MetaCost {
  OperatorCost forward, backward;
  double products = 0;  // of the forward pass
};

MetaCost run_on_meta(const OperatorCase& one, at::ScalarType dtype, const OperatorResult& want) {
  const OperatorTensors inputs = draw_inputs(one, dtype, at::kMeta);
  const OperatorTensors constants = move_constants(one, at::kMeta);
  const ComputeRecorder recorder;
  const OperatorTensors outputs = one.run(inputs, constants);
  MetaCost cost{recorder.log().total(), {}, 0};
  for (const OperatorCall& call : recorder.log().calls)
    if (call.product) cost.products += call.cost.operations;
  EXPECT_EQ(outputs.size(), want.outputs.size());
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    EXPECT_EQ(outputs[i].sizes(), want.outputs[i].sizes()) << "output " << i;
    EXPECT_EQ(outputs[i].scalar_type(), want.outputs[i].scalar_type()) << "output " << i;
  }
  const int64_t begin = recorder.moment();
  const OperatorTensors gradients = gradients_of(outputs, inputs);
  cost.backward = recorder.log().total(begin);
  EXPECT_EQ(gradients.size(), want.gradients.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(gradients[i].sizes(), want.gradients[i].sizes()) << "gradient " << i;
    EXPECT_EQ(gradients[i].scalar_type(), want.gradients[i].scalar_type()) << "gradient " << i;
  }
  return cost;
}

void expect_cost(const OperatorCost& cost) {
  EXPECT_GT(cost.operations, 0);
  EXPECT_GT(cost.read, 0);
  EXPECT_GT(cost.written, 0);
}

TEST_P(Operators, HaveShapesAndACostOnMeta) {
  for (const bool with_kernels : {false, true})
    for (const OperatorCase& one : cases_of(OperatorCheck::meta)) {
      SCOPED_TRACE(one.name + (with_kernels ? " with kernels of a device" : ""));
      const auto kernels = with_kernels ? std::make_unique<model::MetaKernels>() : nullptr;
      std::vector<MetaCost> costs;
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const OperatorTensors inputs = draw_inputs(one, dtype, at::kCPU);
        costs.push_back(run_on_meta(one, dtype, run_operator(one.run, inputs, one.constants)));
        expect_cost(costs.back().forward);
        if (!GetParam().nodes.empty()) expect_cost(costs.back().backward);
        if (one.products >= 0) {
          EXPECT_EQ(costs.back().products, one.products);
        }
      }
      EXPECT_EQ(costs[0].products, costs[1].products);
    }
}

// Compares with float64 on the same rounded inputs.
TEST_P(Operators, AreNearInNarrowTypes) {
  for (const OperatorCase& one : cases_of(OperatorCheck::bfloat16))
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      if (dtype == at::kHalf && !GetParam().in_half) continue;
      SCOPED_TRACE(one.name + " in " + c10::toString(dtype));
      const OperatorTensors inputs = draw_inputs(one, dtype, at::kCPU);
      expect_results(run_operator(one.run, inputs, one.constants),
                     run_operator(one.run, to_double(inputs), one.constants), GetParam().narrow_tolerance);
    }
}

// Recomputes the forward in the backward, like activation checkpointing.
class OperatorRegion final : public model::Region {
 public:
  OperatorRegion(Keeps keeps, std::function<void()> again) : Region(keeps), again_(std::move(again)) {}

 protected:
  void run_again() override {
    const at::AutoGradMode with_gradients(true);
    const c10::impl::ForceDispatchKeyGuard above_autograd(keys_);
    again_();
  }

 private:
  std::function<void()> again_;
  c10::impl::LocalDispatchKeySet keys_ = c10::impl::tls_local_dispatch_key_set();
};

OperatorResult run_in_region(const OperatorCase& one, const OperatorTensors& inputs,
                             model::Region::Keeps keeps) {
  const auto again = [&] {
    OperatorTensors copies;
    for (const at::Tensor& input : inputs) copies.push_back(input.detach().set_requires_grad(true));
    one.run(copies, one.constants);
  };
  const auto region = c10::make_intrusive<OperatorRegion>(keeps, again);
  OperatorResult out;
  {
    const model::Region::Run recorded(*region);
    out.outputs = one.run(inputs, one.constants);
  }
  out.gradients = gradients_of(out.outputs, inputs);
  return out;
}

TEST_P(Operators, GiveTheSameBitsUnderRecomputation) {
  using Keeps = model::Region::Keeps;
  for (const OperatorCase& one : cases_of(OperatorCheck::recomputation))
    for (const auto& [dtype, keeps] :
         {std::pair{at::kFloat, Keeps::costly_results}, {at::kBFloat16, Keeps::nothing}}) {
      SCOPED_TRACE(one.name + (keeps == Keeps::nothing ? "" : " that keeps costly results"));
      const OperatorTensors inputs = draw_inputs(one, dtype, at::kCPU);
      const OperatorResult want = run_operator(one.run, inputs, one.constants);
      expect_bits(run_in_region(one, inputs, keeps), want);
    }
}

// Gradients of trained inputs are the same whether or not other inputs are frozen.
TEST_P(Operators, TrainEveryOtherInput) {
  for (const OperatorCase& one : cases_of(OperatorCheck::subsets)) {
    const OperatorTensors inputs = draw_inputs(one, at::kDouble, at::kCPU);
    const OperatorResult whole = run_operator(one.run, inputs, one.constants);
    for (size_t first = 0; first < std::min<size_t>(2, inputs.size()); ++first) {
      SCOPED_TRACE(one.name + (first == 0 ? ", even inputs" : ", odd inputs"));
      OperatorTensors some;
      OperatorResult want{whole.outputs, {}};
      for (size_t i = 0; i < inputs.size(); ++i) {
        some.push_back(inputs[i].detach().set_requires_grad(i % 2 == first));
        if (i % 2 == first) want.gradients.push_back(whole.gradients[i]);
      }
      expect_results(run_operator(one.run, some, one.constants), want, 1e-12);
    }
  }
}

// Inputs with padding between rows, and inputs with strided elements.
TEST_P(Operators, TakeViews) {
  const auto apart = [](const at::Tensor& x) { return at::stack({x, x}, -1).select(-1, 0); };
  const auto gapped = [](const at::Tensor& x) {
    return at::cat({x, x.narrow(-1, 0, 1)}, -1).narrow(-1, 0, x.size(-1));
  };
  for (const OperatorCase& one : cases_of(OperatorCheck::views))
    for (const bool gaps : {false, true}) {
      SCOPED_TRACE(one.name + (gaps ? " of rows with gaps" : " of numbers apart"));
      const OperatorTensors inputs = draw_inputs(one, at::kFloat, at::kCPU);
      const auto of_views = [&](const OperatorTensors& in, const OperatorTensors& constants) {
        OperatorTensors views;
        for (const at::Tensor& x : in) views.push_back(gaps ? gapped(x) : apart(x));
        return one.run(views, constants);
      };
      expect_results(run_operator(of_views, inputs, one.constants),
                     run_operator(one.run, inputs, one.constants), 1e-5);
    }
}

double nanoseconds_of(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  int64_t calls = 0;
  const Clock::time_point begin = Clock::now();
  while (calls < 3 || Clock::now() - begin < std::chrono::milliseconds(100)) {
    call();
    ++calls;
  }
  const std::chrono::duration<double, std::nano> spent = Clock::now() - begin;
  return spent.count() / static_cast<double>(calls);
}

// HEDDLE_TEST_SPEED=1 prints the float32 times of forward and of forward plus backward.
TEST_P(Operators, PrintTheirSpeedWhereAsked) {
  if (std::getenv("HEDDLE_TEST_SPEED") == nullptr) GTEST_SKIP() << "HEDDLE_TEST_SPEED is not set";
  const std::vector<OperatorCase>& speed = GetParam().speed;
  for (const OperatorCase& one : speed.empty() ? std::vector{GetParam().cases.back()} : speed) {
    const OperatorTensors inputs = draw_inputs(one, at::kFloat, at::kCPU);
    const double forward = nanoseconds_of([&] {
      const at::NoGradGuard no_gradients;
      one.run(inputs, one.constants);
    });
    const double both = nanoseconds_of([&] { run_operator(one.run, inputs, one.constants); });
    double operations = 0;
    if (!GetParam().skipped.contains(OperatorCheck::meta)) {
      const at::NoGradGuard no_gradients;
      const ComputeRecorder recorder;
      one.run(draw_inputs(one, at::kFloat, at::kMeta), move_constants(one, at::kMeta));
      operations = recorder.log().total().operations;
    }
    std::printf("%-24s %-32s %12.0f ns %12.0f ns with backward %8.2f GFLOP/s\n", GetParam().name.c_str(),
                one.name.c_str(), forward, both, operations / forward);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Operators, ::testing::ValuesIn(operators()),
                         [](const auto& info) { return info.param.name; });

// HEDDLE_TEST_SPEED=1 prints the skipped checks.
void expect_reasons(const std::string& name, const std::map<OperatorCheck, std::string>& skipped) {
  for (const auto& [check, reason] : skipped) {
    EXPECT_GT(reason.size(), 20u) << name << ", " << name_of(check);
    if (std::getenv("HEDDLE_TEST_SPEED") != nullptr)
      std::printf("%s: no check '%s': %s\n", name.c_str(), name_of(check), reason.c_str());
  }
}

TEST(OperatorRegistry, HasNamesOnceAndReasons) {
  std::set<std::string> names;
  for (const Operator& one : operators()) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_FALSE(one.cases.empty()) << one.name;
    expect_reasons(one.name, one.skipped);
    for (const OperatorCase& each : one.cases) expect_reasons(one.name + ", " + each.name, each.skipped);
  }
}

}  // namespace
}  // namespace heddle::tests
