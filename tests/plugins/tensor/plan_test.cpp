// Plans of tensor parallelism: what they split, and the messages about what they cannot.
#include <gtest/gtest.h>

#include "heddle/model/module_unit.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/linear.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

Sizes tp(int size) {
  Sizes sizes;
  sizes.world = sizes.tp = size;
  return sizes;
}

// What check() says of a model and the fields of the section.
std::string said(const std::string& fields, int size = 2, const ModelConfig& model = four_heads().model) {
  return error_of([&] {
    Units units = make_units(model, at::TensorOptions().device(at::kMeta));
    make_parallelizer("tensor", fields)->check(units, tp(size));
  });
}

std::string plan(const std::string& entries) {
  return "tp_plan: {" + entries + "}";
}

void expect_plan_parity(const std::string& entries) {
  for (const char* sequence : {"false", "true"}) {
    SCOPED_TRACE(entries + ", sequence_parallel " + sequence);
    Training run = four_heads("qwen3");
    run.model.mlp_bias = run.model.output_bias = true;
    run.steps = 6;
    const Outcome want = train(run);
    expect_close(train(over_tp(run, 2, plan(entries) + "\nsequence_parallel: " + sequence)), want);
  }
}

TEST(TensorPlan, SplitsTheMlpAlone) {
  expect_plan_parity(
      "model.layers.*.mlp.gate_proj: colwise, model.layers.*.mlp.up_proj: colwise, "
      "model.layers.*.mlp.down_proj: rowwise");
}

TEST(TensorPlan, SplitsLayersThatStandAloneAmongWholeOnes) {
  expect_plan_parity(
      "model.layers.*.self_attn.q_proj: colwise_rep, model.layers.*.self_attn.o_proj: rowwise_rep, "
      "model.layers.*.mlp.down_proj: rowwise_rep, \"model.layers.?.mlp.up_proj\": colwise_rep");
}

TEST(TensorPlan, SplitsTheVocabularyAlone) {
  expect_plan_parity("model.embed_tokens: rowwise_rep, lm_head: colwise_rep");
}

TEST(TensorPlan, SplitsTheHeadAlongItsInputs) {
  expect_plan_parity("lm_head: rowwise_rep, model.layers.0.self_attn.q_proj: replicated");
}

TEST(TensorPlan, SplitsOneLayerOnlyWhereThePatternSaysSo) {
  expect_plan_parity(
      "model.layers.1.self_attn.*_proj: colwise_rep, model.layers.0.mlp.gate_proj: colwise, "
      "model.layers.0.mlp.up_proj: colwise, model.layers.0.mlp.down_proj: rowwise");
}

TEST(TensorPlan, AcceptsAMapOfTheHuggingFacePlan) {
  expect_plan_parity(
      "model.embed_tokens: rowwise_rep, model.layers.*.self_attn.q_proj: colwise, "
      "model.layers.*.self_attn.k_proj: colwise, model.layers.*.self_attn.v_proj: colwise, "
      "model.layers.*.self_attn.q_norm: replicated_with_grad_allreduce, "
      "model.layers.*.self_attn.k_norm: replicated_with_grad_allreduce, "
      "model.layers.*.self_attn.o_proj: rowwise, model.layers.*.mlp.gate_proj: colwise, "
      "model.layers.*.mlp.up_proj: colwise, model.layers.*.mlp.down_proj: rowwise, lm_head: colwise_rep");
}

TEST(TensorPlan, RefusesAnUnknownStyleWithTheNearest) {
  const std::string text = said(plan("lm_head: colwize"));
  EXPECT_NE(text.find("Unknown parallel style: colwize"), text.npos) << text;
  EXPECT_NE(text.find("did you mean 'colwise'? there are colwise, rowwise, colwise_rep"), text.npos) << text;
  EXPECT_NE(text.find("test.yaml:1"), text.npos) << text;
}

TEST(TensorPlan, RefusesAPatternThatMatchesNothingWithTheNearestPath) {
  const std::string text = said(plan("model.layers.*.self_attn.qproj: colwise"));
  EXPECT_NE(text.find("no module matches the pattern 'model.layers.*.self_attn.qproj'"), text.npos) << text;
  EXPECT_NE(text.find("did you mean 'model.layers.*.self_attn.q_proj'?"), text.npos) << text;
}

TEST(TensorPlan, AStarStandsForOneSegment) {
  const std::string text = said(plan("model.*.q_proj: colwise"));
  EXPECT_NE(text.find("no module matches the pattern 'model.*.q_proj'"), text.npos) << text;
}

TEST(TensorPlan, RefusesTwoStylesForOneModule) {
  const std::string text = said(plan("lm_head: colwise, lm_*: rowwise_rep"));
  EXPECT_NE(text.find("two styles for 'lm_head': colwise"), text.npos) << text;
  EXPECT_NE(text.find("and rowwise_rep (the pattern 'lm_*')"), text.npos) << text;
}

TEST(TensorPlan, RefusesAStyleThatDoesNotFitTheModule) {
  const std::string text = said(plan("model.embed_tokens: colwise"));
  EXPECT_NE(text.find("the style 'colwise' does not fit 'model.embed_tokens', a module of kind embedding"),
            text.npos)
      << text;
  EXPECT_NE(text.find("it takes rowwise_rep or rowwise or replicated"), text.npos) << text;
}

TEST(TensorPlan, RefusesHalfASplitBlock) {
  const std::string text =
      said(plan("model.layers.*.mlp.gate_proj: colwise, model.layers.*.mlp.down_proj: rowwise"));
  EXPECT_NE(text.find("the plan gives 'model.layers.0.mlp.gate_proj' the style 'colwise', but "
                      "'model.layers.0.mlp.up_proj' beside it is not split"),
            text.npos)
      << text;
}

TEST(TensorPlan, RefusesColumnsThatNobodySums) {
  const std::string text = said(plan("model.layers.*.mlp.*: colwise"));
  EXPECT_NE(text.find("splits 'model.layers.0.mlp.gate_proj' as 'colwise' without a 'rowwise' layer"),
            text.npos)
      << text;
}

TEST(TensorPlan, RefusesARowwiseHead) {
  const std::string text = said(plan("lm_head: rowwise"));
  EXPECT_NE(text.find("'lm_head' gets whole hidden states, and 'rowwise' takes split ones"), text.npos)
      << text;
}

TEST(TensorPlan, RefusesSequenceParallelNormsWithoutSequenceParallelism) {
  const std::string text = said(plan("model.norm: sequence_parallel"));
  EXPECT_NE(text.find("the style 'sequence_parallel' of 'model.norm' needs sequence_parallel: true"),
            text.npos)
      << text;
}

TEST(TensorPlan, RefusesASumOfGradientsThatAreWhole) {
  const std::string text = said(plan("model.layers.*.self_attn.q_norm: replicated_with_grad_allreduce"), 2,
                                four_heads("qwen3").model);
  EXPECT_NE(text.find("does not fit 'model.layers.0.self_attn.q_norm', which sees whole hidden states"),
            text.npos)
      << text;
}

TEST(TensorPlan, RefusesHalfATiedParameter) {
  Training run = four_heads();
  run.model.tie_word_embeddings = true;
  run.steps = 1;
  const std::string text = error_of([&] { train(over_tp(run, 2, plan("lm_head: colwise"))); });
  EXPECT_NE(
      text.find("the parameter 'model.embed_tokens.weight' is tied, and the plan splits only one of its "
                "places"),
      text.npos)
      << text;
}

TEST(TensorPlan, RefusesHeadsThatDoNotDivideWithTheModelsNumbers) {
  ModelConfig model = four_heads().model;
  model.num_key_value_heads = 2;
  EXPECT_NE(said("{}", 4, model).find("num_key_value_heads (2) must be divisible by TP size (4)"),
            std::string::npos);
  model.num_key_value_heads = 3;
  model.num_attention_heads = 9;
  EXPECT_NE(said("{}", 2, model).find("num_key_value_heads (3) must be divisible by TP size (2)"),
            std::string::npos);
  EXPECT_EQ(said("{}", 3, model), "no error");
  EXPECT_EQ(said("{}", 4), "no error");
}

TEST(TensorPlan, RefusesQueryHeadsThatDoNotDivide) {
  ModelConfig model = four_heads().model;
  model.num_attention_heads = 6;
  model.num_key_value_heads = 6;
  EXPECT_NE(said("{}", 4, model).find("num_key_value_heads (6) must be divisible by TP size (4)"),
            std::string::npos);
}

TEST(TensorPlan, AsksForSequenceParallelismBeforeOverlap) {
  const std::string text =
      error_of([] { make_parallelizer("tensor", "enable_async_tensor_parallel: true"); });
  EXPECT_NE(text.find("enable_async_tensor_parallel=True requires sequence_parallel=True"), text.npos)
      << text;
}

TEST(TensorPlan, RefusesATiedParameterSplitInTwoWays) {
  Training run = four_heads();
  run.model.tie_word_embeddings = true;
  run.steps = 1;
  const std::string text = error_of(
      [&] { train(over_tp(run, 2, plan("lm_head: rowwise_rep, model.embed_tokens: rowwise_rep"))); });
  EXPECT_NE(text.find("the tied parameter 'model.embed_tokens.weight' is split in two ways"), text.npos)
      << text;
}

TEST(TensorPlan, RefusesADimWithFewerIndicesThanRanks) {
  Training run = four_heads();
  run.model.intermediate_size = 3;
  run.steps = 1;
  const std::string text = error_of([&] { train(over_tp(run, 4)); });
  EXPECT_NE(text.find("the parameter 'model.layers.0.mlp.gate_proj.weight' has 3 indices along dim 0, fewer "
                      "than the 4 ranks of tp"),
            text.npos)
      << text;
}

// A module of an embedder: one linear layer, or something that heddle does not know.
class Odd : public Module {
 public:
  std::string_view kind() const override { return "odd"; }
  explicit Odd(TokenUse use) : tokens(use) {
    add_slot("scale", scale, {});
    add_child("mix", mix);
  }
  ModuleTraits traits() const override { return {.tokens = tokens}; }
  TokenUse tokens;
  at::Tensor scale;
  Linear mix{4, 4, Linear::Bias::none, {}, at::TensorOptions().device(at::kMeta)};

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return mix.call(std::move(x), batch); }
};

std::string said_of_odd(const std::string& fields, TokenUse tokens = TokenUse::undeclared) {
  return error_of([&] {
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("odd", "odd", std::make_unique<Odd>(tokens)));
    make_parallelizer("tensor", fields)->check(units, tp(2));
  });
}

TEST(TensorPlan, AsksForAPlanWhereTheArchitectureHasNone) {
  const std::string text = said_of_odd("{}");
  EXPECT_NE(text.find("No tensor-parallel plan is registered for this model"), text.npos) << text;
  EXPECT_NE(text.find("tp_plan: {layers.*.mlp.up: colwise,\n"), text.npos) << text;
  EXPECT_EQ(said_of_odd(plan("odd.mix: colwise_rep")), "no error");
}

TEST(TensorPlan, RefusesSequenceParallelismForModulesItDoesNotKnow) {
  const std::string text = said_of_odd(plan("odd.mix: colwise_rep") + "\nsequence_parallel: true");
  EXPECT_NE(text.find("sequence_parallel cannot tell what 'odd' (odd) does with a part of the tokens"),
            text.npos)
      << text;
}

TEST(TensorPlan, RefusesAForeignModel) {
  const std::string text = error_of([] {
    Units units = toy_units({});
    make_parallelizer("tensor", "{}")->check(units, tp(2));
  });
  EXPECT_NE(text.find("is a foreign model without seams, which tensor parallelism cannot split"), text.npos)
      << text;
}

// A block whose own forward is declared: with a linear layer and, if asked for, attention beside it.
class Declared : public Module {
 public:
  explicit Declared(ModuleTraits traits) : traits_(std::move(traits)) {
    add_child("mix", mix_);
    add_child("core", core_);
  }
  std::string_view kind() const override { return "declared"; }
  ModuleTraits traits() const override { return traits_; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override { return mix_.call(std::move(x), batch); }

 private:
  ModuleTraits traits_;
  Linear mix_{4, 4, Linear::Bias::none, {}, at::TensorOptions().device(at::kMeta)};
  AttentionCore core_{4};
};

std::string said_of_tokens(const ModuleTraits& traits, const std::string& sequence) {
  return error_of([&] {
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("layers.0", "layers.0", std::make_unique<Declared>(traits)));
    make_parallelizer("tensor", plan("layers.0.mix: colwise_rep") + "\nsequence_parallel: " + sequence)
        ->check(units, tp(2));
  });
}

TEST(TensorPlan, RefusesSequenceParallelismForModulesThatMixTokens) {
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::mixes}, "true"),
            "error[config] distributed.sequence_parallel: 'layers.0' (declared) computes a token from other "
            "tokens and has no rule for the axis tp, whose ranks hold parts of the sequence\n"
            "  hint: set sequence_parallel: false");
  EXPECT_NE(said_of_tokens({}, "true").find("'layers.0' (declared) does not say whether it computes each"),
            std::string::npos);
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::mixes, .token_axes = {"tp"}}, "true"), "no error");
  EXPECT_NE(said_of_odd(plan("odd.mix: colwise_rep") + "\nsequence_parallel: true", TokenUse::mixes)
                .find("distributed.sequence_parallel: 'odd' (odd) computes a token from other tokens"),
            std::string::npos);
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::each_alone}, "true"), "no error");
  EXPECT_EQ(said_of_tokens({.tokens = TokenUse::mixes}, "false"), "no error");
}

}  // namespace
}  // namespace heddle::tests
