// The order of ddp's buckets follows the arrival of gradients, and settings about the graph are applied and
// checked.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

Training over(int ranks, const std::string& section, const Toy& shape = {}) {
  Training run = toy("ddp", {{"dp", ranks}}, "", shape);
  run.section = section;
  return run;
}

// Uses the layers' parameters in the given order, which differs from the order of the list.
Units in_order(const std::vector<int>& order) {
  Toy shape{.layers = 1};
  Units units = toy_units(shape);
  std::vector<ToyUnit::Parameter> parameters;
  for (const int64_t size : {1, 2, 5, 6})
    parameters.push_back({"p" + std::to_string(size),
                          at::empty({size}, at::device(at::kMeta)).set_requires_grad(true),
                          {Init::Kind::ones}});
  units[1] = std::make_unique<ToyUnit>("layer0", std::move(parameters),
                                       [order](ToyUnit& unit, Tensors inputs, const Batch&) -> Tensors {
                                         at::Tensor x = inputs[0];
                                         for (const int i : order) x = x * unit.own[i].tensor.sum().tanh();
                                         return {x};
                                       });
  return units;
}

// Returns the reductions of the layer's parameters, by size, in the order in which one rank launched them.
std::vector<std::string> sums_of_layer(const std::vector<std::string>& events) {
  std::vector<std::string> out;
  for (const std::string& event : events)
    for (const int size : {1, 2, 5, 6})
      if (event == "all_reduce dp " + std::to_string(size + 1)) out.push_back(std::to_string(size));
  return out;
}

TEST(DdpOrder, FollowsTheGradientsOfRank0FromTheSecondStep) {
  std::vector<std::vector<std::string>> events;
  Training run = over(2, "bucket_cap_mb: 0");
  run.steps = 2;
  run.events = &events;
  run.make_units = [](int rank) {
    return in_order(rank == 0 ? std::vector{2, 0, 3, 1} : std::vector{0, 1, 2, 3});
  };
  train(run);
  const std::vector<std::string> want = {"6", "5", "2", "1",   // reverse execution order
                                         "2", "6", "1", "5"};  // reverse order of use on rank 0
  EXPECT_EQ(sums_of_layer(events[0]), want);
  EXPECT_EQ(sums_of_layer(events[1]), want);
}

TEST(DdpOrder, DoesNotChangeWithFindUnusedParameters) {
  std::vector<std::vector<std::string>> events;
  Training run = over(2, "{bucket_cap_mb: 0, find_unused_parameters: true}");
  run.steps = 2;
  run.events = &events;
  run.make_units = [](int) { return in_order({2, 0, 3, 1}); };
  train(run);
  EXPECT_EQ(sums_of_layer(events[0]), (std::vector<std::string>{"6", "5", "2", "1", "6", "5", "2", "1"}));
}

TEST(DdpOrder, EqualsSingleWithEveryGraphSetting) {
  for (const bool tied : {false, true})
    for (const char* section :
         {"{}", "{find_unused_parameters: true}", "{static_graph: true}", "{bucket_cap_mb: 0.0001}",
          "{static_graph: true, find_unused_parameters: true, gradient_as_bucket_view: true}",
          "{bucket_cap_mb: 0.0001, find_unused_parameters: true, gradient_as_bucket_view: true}"})
      for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
        SCOPED_TRACE(std::string(section) + (tied ? " tied" : ""));
        Toy shape{.tied = tied};
        Training single = toy("single", {}, "", shape), run = over(2, section, shape);
        for (Training* one : {&single, &run}) {
          one->steps = 4;
          one->microbatches = one == &run ? 3 : 1;
          use_extra_where(*one, std::vector<double>(12, 0.0));  // no rank uses the layers' `extra`
        }
        run.checkpointing = mode;
        expect_close(train(run), train(single));
      }
}

TEST(DdpOrder, FindsUnusedParametersOfOneRankAndSumsTheRest) {
  Training single = toy("single", {}), run = over(2, "{find_unused_parameters: true, bucket_cap_mb: 0.0001}");
  for (Training* one : {&single, &run}) {
    one->steps = 3;
    one->microbatches = one == &run ? 1 : 2;
    use_extra_where(*one, {1.0, 0.0});
  }
  expect_close(train(run), train(single));
}

// The first step uses the layer's parameters in `first`, and later steps those in `later`.
std::string error_when_use_changes(const std::vector<int>& first, const std::vector<int>& later) {
  Training run = over(2, "{static_graph: true}");
  run.steps = 3;
  run.make_units = [=](int) {
    Units units = in_order(first), then = in_order(later);
    const ToyUnit::Body body = toy_at(units, 1).body(), other = toy_at(then, 1).body();
    auto steps = std::make_shared<int>(0);
    units[1] = std::make_unique<ToyUnit>(
        "layer0", toy_at(units, 1).own, [=](ToyUnit& unit, Tensors inputs, const Batch& batch) {
          return ((*steps)++ == 0 ? body : other)(unit, std::move(inputs), batch);
        });
    return units;
  };
  return error_of([&] { train(run); });
}

TEST(DdpOrder, NamesTheParameterWhenAStaticGraphChanges) {
  EXPECT_EQ(error_when_use_changes({0, 1}, {1, 0}), "no error");
  EXPECT_EQ(error_when_use_changes({0, 1, 2}, {0, 2}),
            "error[input] ddp: static_graph is true, but the parameter 'p2' had a gradient in the first "
            "step, and has none "
            "now\n  hint: set static_graph: false, which takes every step as it comes");
  EXPECT_EQ(
      error_when_use_changes({0, 2}, {0, 1, 2}),
      "error[input] ddp: the parameter 'p2' got a gradient more often than in the first step\n  hint: set "
      "static_graph: false");
}

}  // namespace
}  // namespace heddle::tests
