// Buffers of foreign modules under ddp.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "heddle/adapters/torch_nn.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

// A layer whose module counts the forwards of this rank, from a start value that differs between ranks.
class Counting : public torch::nn::Module {
 public:
  explicit Counting(int rank) {
    weight = register_parameter("weight", at::full({Toy::kWidth}, 0.5));
    seen = register_buffer("seen", at::full({1}, 100.0 * rank));
  }
  at::Tensor weight, seen;
};

// Returns the value of each rank's buffer at the start of each forward.
std::vector<std::vector<double>> seen_under(const std::string& section, int steps, int microbatches) {
  std::vector<std::vector<double>> held(2);
  Training run = toy("ddp", {{"dp", 2}});
  run.section = section;
  run.steps = steps;
  run.microbatches = microbatches;
  run.make_units = [&held](int rank) {
    Units units = toy_units({});
    auto module = std::make_shared<Counting>(rank);
    Units layer =
        adapters::torch_units({{"counting", module, [&held, module, rank](Tensors in, const Batch&) {
                                  held[rank].push_back(module->seen.item<double>());
                                  {
                                    const at::NoGradGuard no_gradients;
                                    module->seen.add_(rank + 1);
                                  }
                                  return Tensors{in[0] * module->weight};
                                }}});
    units[2] = std::move(layer[0]);
    return units;
  };
  train(run);
  return held;
}

TEST(DdpBuffers, StartWithRank0sValuesAndThenStayLocal) {
  const auto held = seen_under("{}", 2, 2);
  EXPECT_EQ(held[0], (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(held[1], (std::vector<double>{0, 2, 4, 6}));
}

TEST(DdpBuffers, AreBroadcastBeforeEachStepAndEvaluation) {
  const auto held = seen_under("{broadcast_buffers: true}", 3, 2);  // an evaluation follows the third step
  EXPECT_EQ(held[0], (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(held[1], (std::vector<double>{0, 2, 2, 4, 4, 6, 6, 8}));
}

}  // namespace
}  // namespace heddle::tests
