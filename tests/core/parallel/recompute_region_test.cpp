// Recomputed units of heddle's layers need no nested backward, are recomputed only as far as needed, and
// selectively.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <memory>
#include <string>

#include "core/parallel/held_bytes.h"
#include "core/parallel/recompute_units.h"
#include "heddle/base/error.h"
#include "heddle/nn/weight_gradients.h"
#include "heddle/parallel/after_gradient.h"

namespace heddle {
namespace {

using namespace heddle::tests;

// Counts calls of operators on this thread during its lifetime.
class Calls {
 public:
  Calls() {
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& call) {
      ++counts()[call.name()];
      return std::unique_ptr<at::ObserverContext>();
    }));
    counts().clear();
  }
  ~Calls() { at::removeCallback(handle_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  int products() const { return counts()["aten::mm"] + counts()["aten::addmm"] + counts()["aten::addmm_"]; }
  int attention_cores() const { return counts()["heddle::attention"]; }

 private:
  static std::map<std::string, int>& counts() {
    static thread_local std::map<std::string, int> counts;
    return counts;
  }
  at::CallbackHandle handle_;
};

struct MicrobatchState {
  Gradients gradients;  // of x, then of the parameters
  int products = 0;     // in the backward
};

MicrobatchState pass(Unit& unit, Batch batch = {}) {
  const at::Tensor x = at::linspace(-1, 1, 32).view({4, 8}).set_requires_grad(true);
  const at::Tensor y = unit.forward({x}, batch)[0].sum();
  MicrobatchState out;
  const Calls calls;
  y.backward();
  out.products = calls.products();
  out.gradients = gradients_of(unit);
  out.gradients.insert(out.gradients.begin(), x.grad());
  return out;
}

TEST(RecomputeRegion, EqualsTheBitsOfThePlainUnitWhenSelective) {
  for (const int layers : {1, 2, 3, 4, 5}) {
    SCOPED_TRACE(layers);
    const MicrobatchState plain = pass(*row(layers, Mode::none)), kept = pass(*row(layers, Mode::selective)),
                          full = pass(*row(layers, Mode::full));
    expect_equal(kept.gradients, plain.gradients);
    expect_equal(full.gradients, plain.gradients);
    EXPECT_EQ(plain.products, 2 * layers);
    EXPECT_EQ(kept.products - plain.products, layers / 2);  // the second, the fourth
    EXPECT_EQ(full.products - plain.products, layers);
  }
}

struct Cost {
  int products, attention_cores;
};

Cost cost_of_backward(const ModelConfig& shape, Mode mode) {
  Units units = built_model(shape, mode);
  const at::Tensor loss = loss_of(units, tokens());
  const Calls calls;
  loss.backward();
  return {calls.products(), calls.attention_cores()};
}

TEST(RecomputeRegion, EndsBeforeTheLastProductAndKeepsCostlyResultsWhenSelective) {
  const Cost plain = cost_of_backward(small_model(), Mode::none);
  const Cost full = cost_of_backward(small_model(), Mode::full);
  const Cost selective = cost_of_backward(small_model(), Mode::selective);
  EXPECT_EQ(plain.attention_cores, 0);
  EXPECT_EQ(full.products - plain.products,
            3 * 6);  // q, k, v, o, gate, up (all but down) in each of 3 layers
  EXPECT_EQ(full.attention_cores, 3);
  EXPECT_EQ(selective.products - plain.products, 3 * 3);  // k, o, up
  EXPECT_EQ(selective.attention_cores, 0);
}

TEST(RecomputeRegion, EqualsTheBitsOfThePlainModelWithSplitBackwards) {
  Batch one = tokens(), two = tokens();
  two.tokens = two.tokens.flip({0});
  Units plain = built_model(small_model(), Mode::none);
  loss_of(plain, one).backward();
  loss_of(plain, two).backward();
  for (const Mode mode : {Mode::full, Mode::selective}) {
    Units again = built_model(small_model(), mode);
    WeightGradients queue1, queue2;
    one.weight_gradients = &queue1;
    two.weight_gradients = &queue2;
    const at::Tensor loss1 = loss_of(again, one), loss2 = loss_of(again, two);
    queue1.defer();
    loss1.backward();
    queue2.defer();
    loss2.backward();
    queue1.drain();
    queue2.drain();
    expect_equal(gradients_of(again), gradients_of(plain));
  }
}

TEST(RecomputeRegion, HoldsLessMemoryTheMoreItRecomputes) {
  ModelConfig shape = small_model();
  shape.num_hidden_layers = 8;
  int64_t between[3], peak[3];
  for (const Mode mode : {Mode::none, Mode::selective, Mode::full}) {
    Units units = built_model(shape, mode);
    at::Tensor loss;
    const Batch batch = tokens();
    const int i = mode == Mode::none ? 0 : mode == Mode::selective ? 1 : 2;
    between[i] = held_while([&] { loss = loss_of(units, batch); }).now;
    peak[i] = between[i] + held_while([&] { loss.backward(); }).peak;
  }
  const int64_t input = 24 * shape.hidden_size * 4, layers = 8;
  EXPECT_LT(between[1], between[0] - 4 * layers * input);
  EXPECT_LT(between[2], between[1] - 2 * layers * input);
  EXPECT_LT(peak[1], peak[0] - 3 * layers * input);
  EXPECT_LT(peak[2], peak[1]);
}

TEST(RecomputeRegion, CallsTheHookOfASharedParameterOnceInTheOneBackward) {
  Linear shared(8, 8, Linear::Bias::none, {Init::Kind::normal, 0.3}, at::kFloat);
  int calls = 0;
  auto accumulator = torch::autograd::impl::grad_accumulator(shared.weight);
  accumulator->add_post_hook(std::make_unique<AfterGradient>([&calls] { ++calls; }));
  at::Tensor y = at::ones({2, 8});
  std::vector<std::unique_ptr<Unit>> units;
  for (int i = 0; i < 2; ++i) {
    auto module = std::make_unique<Row>(2, 8);
    static_cast<Linear*>(module->children()[0].second)->weight = shared.weight;
    units.push_back(
        parallel::recomputed(std::make_unique<ModuleUnit>("row", "row", std::move(module)), Mode::full));
    y = units.back()->forward({y}, {})[0];
  }
  y.sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(RecomputeRegion, FreesTensorsThatForeignOperatorsSave) {
  const auto tanh = [](at::Tensor x) { return x.tanh(); };
  const MicrobatchState plain = pass(*row(3, Mode::none, tanh));
  for (const Mode mode : {Mode::full, Mode::selective}) {
    auto unit = row(3, mode, tanh);
    for (int run = 0; run < 2; ++run) {
      for (const ParameterSlot& slot : unit->parameters()) slot.tensor->mutable_grad().reset();
      expect_equal(pass(*unit).gradients, plain.gradients);
    }
  }
  auto unit = row(3, Mode::full, tanh);
  const at::Tensor x = at::ones({64, 8}).set_requires_grad(true);
  for (int run = 0; run < 2; ++run) {  // the first run finds out
    at::Tensor y;
    EXPECT_LE(held_while([&] { y = unit->forward({x}, {})[0]; }).now, 64 * 8 * 4 + 64);
  }
}

TEST(RecomputeRegion, DrawsTheSameRandomNumbersAgain) {
  const auto drop = [](at::Tensor x) { return model::swiglu(at::dropout(x, 0.5, true), x); };
  Gradients next;
  MicrobatchState plain;
  for (const Mode mode : {Mode::none, Mode::full, Mode::selective}) {
    auto unit = row(3, mode, drop);
    const MicrobatchState got = pass(*unit);
    const at::Tensor after = at::rand({4});
    if (mode == Mode::none) {
      plain = got;
      next = {after};
      continue;
    }
    expect_equal(got.gradients, plain.gradients);
    expect_equal({after}, next);
  }
}

TEST(RecomputeRegion, RefusesAForeignUnitWhenSelective) {
  Units units;
  for (int i = 0; i < 3; ++i)
    units.push_back(tests::unit_of(
        "foreign", at::ones({3}).set_requires_grad(true),
        [](const at::Tensor& weight, const Tensors& in, const Batch&) { return in[0] * weight; }));
  parallel::check_recompute(units, Mode::full);
  try {
    parallel::check_recompute(units, Mode::selective);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "distributed.activation_checkpointing");
    EXPECT_EQ(
        error.message(),
        "the unit 'foreign' is a foreign model, whose operators selective activation checkpointing does "
        "not know");
    EXPECT_EQ(error.hint(), "write activation_checkpointing: full");
  }
  EXPECT_THROW(parallel::recompute(units, units[0].get(), units[2].get(), Mode::selective), Error);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(RecomputeRegion, ReportsTensorsChangedBetweenForwardAndBackward) {
  auto unit = row(2, Mode::full);
  const at::Tensor x = at::ones({2, 8}), y = unit->forward({x}, {})[0].sum();
  x.add_(1);
  EXPECT_EQ(message_of([&] { y.backward(); }),
            "an input of unit 'row' was changed in place after its forward");
  int runs = 0;
  auto fickle = row(2, Mode::full, [&runs](at::Tensor x) { return ++runs > 2 ? x : model::swiglu(x, x); });
  const at::Tensor z = fickle->forward({x}, {})[0].sum();
  EXPECT_EQ(message_of([&] { z.backward(); }),
            "a unit under activation checkpointing saved 6 values in its forward and 2 when it was computed "
            "again");
}

TEST(RecomputeRegion, RefusesASecondBackwardUnlessTheGraphIsRetained) {
  auto unit = row(2, Mode::full);
  const at::Tensor x = at::ones({2, 8}), y = unit->forward({x}, {})[0].sum();
  y.backward({}, /*retain_graph=*/true);
  const at::Tensor once = unit->parameters()[0].tensor->grad().clone();
  y.backward({}, /*retain_graph=*/true);
  EXPECT_TRUE(at::equal(unit->parameters()[0].tensor->grad(), once * 2));
  y.backward();
  EXPECT_EQ(message_of([&] { y.backward(); }), "the backward of this graph has already run");
}

}  // namespace
}  // namespace heddle
