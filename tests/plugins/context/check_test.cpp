// What context parallelism refuses before there is a mesh.
#include <ATen/TensorOperators.h>
#include <ATen/ops/roll.h>
#include <gtest/gtest.h>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

const std::string kNone = "no error";

// What is said of a model before there is a mesh.
std::string said_of_context(const std::string& method, int cp, int tp = 1,
                            const std::string& model = "llama") {
  Sizes sizes;
  sizes.world = cp * tp;
  sizes.cp = cp;
  sizes.tp = tp;
  return error_of([&] {
    Units units = make_units(four_heads(model).model, at::TensorOptions().device(at::kMeta));
    make_parallelizer("context", "context: {method: " + method + "}")->check(units, sizes);
  });
}

TEST(ContextCheck, KnowsHeadsAndRanks) {
  for (const std::string method : {"allgather", "ring"}) EXPECT_EQ(said_of_context(method, 3, 2), kNone);
  EXPECT_EQ(said_of_context("ulysses", 4), kNone);
  EXPECT_EQ(said_of_context("ring_ulysses", 6), kNone);
  EXPECT_NE(said_of_context("ulysses", 8).find("a rank has 4, cp_size is 8"), std::string::npos)
      << said_of_context("ulysses", 8);
  EXPECT_NE(said_of_context("ulysses", 4, 2).find("a rank has 2, cp_size is 4"), std::string::npos);
  EXPECT_EQ(
      said_of_context("ring_ulysses, ulysses_size: 8", 8),
      "error[config] distributed.context.method: method ring_ulysses needs a number of heads, of queries "
      "and of keys, that ulysses_size divides: a rank has 4, ulysses_size is 8\n"
      "  hint: set method: allgather or ring, or a ulysses_size that divides the heads");
  EXPECT_EQ(
      said_of_context("ring_ulysses", 3),
      "error[config] distributed.context.ulysses_size: ulysses_size (2, the default) must divide cp_size "
      "(3)\n  hint: heads are dealt over ulysses_size ranks, and keys travel round cp_size / ulysses_size");
  EXPECT_EQ(
      said_of_context("ring_ulysses, ulysses_size: 4294967296", 4),  // 0 in 32 bits
      "error[config] distributed.context.ulysses_size: ulysses_size (4294967296) must divide cp_size (4)\n"
      "  hint: heads are dealt over ulysses_size ranks, and keys travel round cp_size / ulysses_size");
  EXPECT_NE(said_of_context("ring, ulysses_size: 2", 2)
                .find("ulysses_size is of the method ring_ulysses; the method is ring"),
            std::string::npos);
}

// Adds the token before, and declares what it is told.
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
