// Models that context parallelism refuses before there is a mesh.
#include <ATen/TensorOperators.h>
#include <ATen/ops/roll.h>
#include <gtest/gtest.h>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

const std::string kNone = "no error";

// Adds the previous token, and declares the given traits.
class TokenShift : public Module {
 public:
  explicit TokenShift(ModuleTraits traits) : traits_(std::move(traits)) {}
  std::string_view kind() const override { return "token_shift"; }
  ModuleTraits traits() const override { return traits_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override { return x + at::roll(x, 1, 0); }

 private:
  ModuleTraits traits_;
};

std::string said_of_shift(const ModuleTraits& traits) {
  return error_of([&] {
    Units units;
    units.push_back(
        std::make_unique<ModuleUnit>("layers.0", "layers.0", std::make_unique<TokenShift>(traits)));
    Sizes sizes;
    sizes.world = sizes.cp = 2;
    make_parallelizer("context", "context: {method: ring}")->check(units, sizes);
  });
}

TEST(ContextCheck, RefusesModulesThatMixTokensByName) {
  EXPECT_EQ(
      said_of_shift({.tokens = TokenUse::mixes}),
      "error[config] distributed.cp_size: 'layers.0' (token_shift) computes a token from other tokens and "
      "has no rule for the axis cp, whose ranks hold parts of the sequence\n  hint: set cp_size: 1");
  EXPECT_EQ(
      said_of_shift({}),
      "error[config] distributed.cp_size: 'layers.0' (token_shift) does not say whether it computes each "
      "token alone, and ranks along the axis cp hold parts of the sequence\n"
      "  hint: override Module::traits() in the model, or set cp_size: 1");
  EXPECT_EQ(said_of_shift({.tokens = TokenUse::mixes, .token_axes = {"cp"}}), kNone);
  EXPECT_EQ(said_of_shift({.tokens = TokenUse::each_alone}), kNone);
}

}  // namespace
}  // namespace heddle::tests
