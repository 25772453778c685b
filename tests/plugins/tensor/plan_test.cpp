// Plans of tensor parallelism: parameters that they split, and messages about invalid plans.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/router.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

Sizes tp(int size) {
  Sizes sizes;
  sizes.world = sizes.tp = size;
  return sizes;
}

std::string plan(const std::string& entries) {
  return "tp_plan: {" + entries + "}";
}

TEST(TensorPlan, EqualsOneRankForEverySplit) {
  Training run = four_heads("qwen3");
  run.model.mlp_bias = run.model.output_bias = true;
  run.steps = 6;
  const std::string
      layers = "model.layers.*.",
      plans[] = {
          // Only the MLP.
          layers + "mlp.gate_proj: colwise, " + layers + "mlp.up_proj: colwise, " + layers +
              "mlp.down_proj: rowwise",
          // Single layers between whole layers.
          layers + "self_attn.q_proj: colwise_rep, " + layers + "self_attn.o_proj: rowwise_rep, " + layers +
              "mlp.down_proj: rowwise_rep, \"model.layers.?.mlp.up_proj\": colwise_rep",
          // Only the vocabulary.
          "model.embed_tokens: rowwise_rep, lm_head: colwise_rep",
          // The head by its inputs.
          "lm_head: rowwise_rep, model.layers.0.self_attn.q_proj: replicated",
          // One layer, selected by the pattern.
          "model.layers.1.self_attn.*_proj: colwise_rep, model.layers.0.mlp.gate_proj: colwise, "
          "model.layers.0.mlp.up_proj: colwise, model.layers.0.mlp.down_proj: rowwise",
          // A plan of Hugging Face.
          "model.embed_tokens: rowwise_rep, model.layers.*.self_attn.q_proj: colwise, "
          "model.layers.*.self_attn.k_proj: colwise, model.layers.*.self_attn.v_proj: colwise, "
          "model.layers.*.self_attn.q_norm: replicated_with_grad_allreduce, "
          "model.layers.*.self_attn.k_norm: replicated_with_grad_allreduce, "
          "model.layers.*.self_attn.o_proj: rowwise, model.layers.*.mlp.gate_proj: colwise, "
          "model.layers.*.mlp.up_proj: colwise, model.layers.*.mlp.down_proj: rowwise, lm_head: colwise_rep"};
  for (const std::string& entries : plans)
    expect_equal_on(run, {"single tp2(" + plan(entries) + ", sequence_parallel: [false|true])"});
}

// A block with a declared or undeclared forward: a linear layer, and beside it attention or a parameter.
class Declared : public Module {
 public:
  enum class Beside { nothing, core, scale };
  Declared(std::string kind, ModuleTraits traits, Beside beside)
      : kind_(std::move(kind)), traits_(std::move(traits)) {
    add_child("mix", mix_);
    if (beside == Beside::core) add_child("core", core_);
    if (beside == Beside::scale) add_slot("scale", scale_, {});
  }
  std::string_view kind() const override { return kind_; }
  ModuleTraits traits() const override { return traits_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return mix_.call(std::move(x), batch); }

 private:
  const std::string kind_;
  ModuleTraits traits_;
  Linear mix_{4, 4, Linear::Bias::none, {}, at::TensorOptions().device(at::kMeta)};
  AttentionCore core_{4};
  at::Tensor scale_ = at::empty({4}, at::TensorOptions().device(at::kMeta)).requires_grad_(true);
};

std::string said_of(std::unique_ptr<Declared> module, const std::string& fields) {
  return error_of([&] {
    const std::string path = module->kind() == "odd" ? "odd" : "layers.0";
    Units units;
    units.push_back(std::make_unique<ModuleUnit>(path, path, std::move(module)));
    make_parallelizer("tensor", fields)->check(units, tp(2));
  });
}

// A module of an embedder.
std::string said_of_odd(const std::string& fields, TokenUse tokens = TokenUse::undeclared) {
  return said_of(std::make_unique<Declared>("odd", ModuleTraits{.tokens = tokens}, Declared::Beside::scale),
                 fields);
}

TEST(TensorPlan, AsksForAPlanIfTheArchitectureHasNone) {
  EXPECT_THAT(said_of_odd("{}"), AllOf(HasSubstr("No tensor-parallel plan is registered for this model"),
                                       HasSubstr("tp_plan: {layers.*.mlp.up: colwise,\n")));
  EXPECT_EQ(said_of_odd(plan("odd.mix: colwise_rep")), "no error");
}

TEST(TensorPlan, RefusesAForeignModel) {
  EXPECT_THAT(error_of([] {
                Units units = toy_units({});
                make_parallelizer("tensor", "{}")->check(units, tp(2));
              }),
              HasSubstr("is a foreign model without seams, which tensor parallelism cannot split"));
}

// A router with a norm beside it.
class NormedMixture : public Module {
 public:
  NormedMixture() {
    add_child("gate", gate_);
    add_child("norm", norm_);
  }
  std::string_view kind() const override { return "mixture"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return norm_.call(std::move(x), batch); }

 private:
  static RouterConfig two_experts() {
    RouterConfig config;
    config.hidden = 4, config.experts = 2, config.rule.top_k = 1;
    return config;
  }
  Router gate_{two_experts(), {}, at::TensorOptions().device(at::kMeta)};
  RmsNorm norm_{4, 1e-6, at::TensorOptions().device(at::kMeta)};
};

TEST(TensorPlan, RefusesToSplitTheTokensOfANormInAMixture) {
  EXPECT_EQ(error_of([] {
              Units units;
              units.push_back(std::make_unique<ModuleUnit>("mlp", "mlp", std::make_unique<NormedMixture>()));
              make_parallelizer("tensor", plan("mlp.norm: sequence_parallel") + "\nsequence_parallel: true")
                  ->check(units, tp(2));
            }),
            "error[config] test.yaml:1 tp_plan.mlp.norm: the style 'sequence_parallel' does not fit "
            "'mlp.norm', which needs all tokens\n  hint: remove it from the plan");
}

TEST(TensorPlan, RefusesSequenceParallelismForModulesThatMixTokens) {
  using Beside = Declared::Beside;
  const auto said_of_tokens = [](const ModuleTraits& traits, const std::string& sequence = "true",
                                 Beside beside = Beside::nothing) {
    return said_of(std::make_unique<Declared>("declared", traits, beside),
                   plan("layers.0.mix: colwise_rep") + "\nsequence_parallel: " + sequence);
  };
  const std::string odd = plan("odd.mix: colwise_rep") + "\nsequence_parallel: true";
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::mixes}),
            "error[config] distributed.sequence_parallel: 'layers.0' (declared) computes a token from other "
            "tokens and has no rule for the axis tp, whose ranks hold parts of the sequence\n"
            "  hint: set sequence_parallel: false");
  EXPECT_THAT(said_of_tokens({}), HasSubstr("'layers.0' (declared) does not say whether it computes each"));
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::mixes, .token_axes = {"tp"}}), "no error");
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::each_alone}), "no error");
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::mixes}, "false"), "no error");
  // Attention that is not split gets all tokens.
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::mixes}, "true", Beside::core), "no error");
  EXPECT_THAT(said_of_odd(odd, TokenUse::each_alone),
              HasSubstr("'odd' (odd) has parameters outside of linear layers"));
  EXPECT_THAT(said_of_odd(odd),
              HasSubstr("'odd' (odd) does not declare how it handles a part of the tokens"));
  EXPECT_THAT(said_of_odd(odd, TokenUse::mixes),
              HasSubstr("distributed.sequence_parallel: 'odd' (odd) computes a token from other tokens"));
}

}  // namespace
}  // namespace heddle::tests
