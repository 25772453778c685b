// Mapping of decoder parameters to stored tensors, tensor-parallel plans, FLOPs and custom mixers.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "heddle/decoder/description.h"
#include "heddle/decoder/family.h"
#include "heddle/model/module_unit.h"
#include "tests/decoder/generated.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr const char* kLayer = "model.layers.1.";

decoder::Model small_decoder() {
  decoder::Attention attention;
  attention.heads = 3, attention.kv_heads = 1, attention.head_dim = 4;
  decoder::Model model;
  model.vocabulary = 11, model.width = 6, model.init_std = 0.5;
  model.layers.assign(2, {attention, decoder::Mlp{.width = 5, .bias = true}});
  return model;
}

StoredParts stored_of(const decoder::Files& files, const std::string& parameter, std::vector<int64_t> shape) {
  return decoder::make_spec({.model = small_decoder(), .files = files})->stored(kLayer + parameter, shape);
}

TEST(DecoderFiles, JoinTheRowsOfSeveralModules) {
  decoder::Files files;
  files.joined("self_attn.qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
      .joined("mlp.gate_up", {"mlp.gate_proj", "mlp.up_proj"});
  const StoredParts v = stored_of(files, "self_attn.v_proj.weight", {4, 6});
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].tensor, "model.layers.1.self_attn.qkv.weight");
  EXPECT_THAT(v[0].shape, ElementsAre(12 + 4 + 4, 6));
  EXPECT_THAT(v[0].first, ElementsAre(16, 0));
  const StoredParts bias = stored_of(files, "mlp.up_proj.bias", {5});
  EXPECT_EQ(bias.at(0).tensor, "model.layers.1.mlp.gate_up.bias");
  EXPECT_THAT(bias[0].first, ElementsAre(5));
  EXPECT_THAT(stored_of(files, "mlp.down_proj.weight", {6, 5}), IsEmpty());
}

TEST(DecoderFiles, WidenAParameterOfOneDim) {
  decoder::Files files;
  files.widened("self_attn.A_log", 2, 1).renamed("self_attn", "mixer");
  const StoredParts parts = stored_of(files, "self_attn.A_log", {6});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].tensor, "model.layers.1.mixer.A_log");
  EXPECT_THAT(parts[0].shape, ElementsAre(1, 1, 6, 1));
  EXPECT_EQ(stored::fault(parts, std::vector<int64_t>{6}), "");
}

TEST(DecoderFiles, TransposeAndRenameWholeSegments) {
  decoder::Files files;
  files.joined("attn.c_attn", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"})
      .transposed("attn.c_attn")
      .transposed("mlp.up_proj")
      .renamed("mlp.up_proj", "mlp.c_fc")
      .renamed("model.layers", "transformer.h");
  const StoredParts k = stored_of(files, "self_attn.k_proj.weight", {4, 6});
  EXPECT_EQ(k.at(0).tensor, "transformer.h.1.attn.c_attn.weight");
  EXPECT_THAT(k[0].shape, ElementsAre(6, 20));
  EXPECT_THAT(k[0].first, ElementsAre(0, 12));
  EXPECT_EQ(stored::fault(k, std::vector<int64_t>{4, 6}), "");
  EXPECT_THAT(stored_of(files, "mlp.up_proj.weight", {5, 6}).at(0).shape, ElementsAre(6, 5));
  EXPECT_THAT(stored_of(files, "mlp.up_proj.bias", {5}).at(0).shape, ElementsAre(5));
  EXPECT_EQ(files.in_files("model.layers_of.mlp.up_projs"), "model.layers_of.mlp.up_projs");
}

// The stored tensor interleaves rows of q and k by group.
TEST(DecoderFiles, JoinRunsInTurn) {
  decoder::Files files;
  files.in_turn("self_attn.all", {"self_attn.q_proj", "self_attn.k_proj"}, 2);
  const StoredParts q = stored_of(files, "self_attn.q_proj.weight", {12, 6});
  const StoredParts k = stored_of(files, "self_attn.k_proj.weight", {4, 6});
  ASSERT_EQ(q.size(), 2U);
  ASSERT_EQ(k.size(), 2U);
  EXPECT_EQ(q[1].tensor, "model.layers.1.self_attn.all.weight");
  EXPECT_THAT(q[1].shape, ElementsAre(16, 6));
  EXPECT_THAT(q[1].first, ElementsAre(8, 0));
  EXPECT_THAT(q[1].offset, ElementsAre(6, 0));
  EXPECT_THAT(q[1].size, ElementsAre(6, 6));
  EXPECT_THAT(k[0].first, ElementsAre(6, 0));
  EXPECT_THAT(k[1].first, ElementsAre(14, 0));
  EXPECT_EQ(stored::fault(q, std::vector<int64_t>{12, 6}), "");
}

// One stored tensor holds gate and up of all experts in the layout of the parameter.
TEST(DecoderFiles, StackExpertsAsTheyLie) {
  decoder::ExpertFiles experts;
  experts.stacked = true, experts.transposed = false;
  const decoder::Files files = decoder::Files().experts(experts);
  const StoredParts both = stored_of(files, "mlp.experts.gate_up_proj", {3, 2, 5, 6});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1].tensor, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_THAT(both[1].shape, ElementsAre(3, 10, 6));
  EXPECT_THAT(both[1].first, ElementsAre(0, 5, 0));
  EXPECT_EQ(stored::fault(both, std::vector<int64_t>{3, 2, 5, 6}), "");
  EXPECT_TRUE(stored_of(files, "mlp.experts.down_proj", {3, 6, 5}).empty());
}

// Each product of the experts is one stacked tensor, and the correction bias is stored as a row.
TEST(DecoderFiles, StackTheProductsOfExpertsApart) {
  decoder::ExpertFiles experts;
  experts.layer = "moe", experts.correction = "router_bias", experts.correction_row = true;
  experts.stacked = experts.apart = true, experts.transposed = false;
  const decoder::Files files = decoder::Files().experts(experts);
  const StoredParts both = stored_of(files, "mlp.experts.gate_up_proj", {3, 2, 5, 6});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].tensor, "model.layers.1.moe.gate_proj.weight");
  EXPECT_EQ(both[1].tensor, "model.layers.1.moe.up_proj.weight");
  EXPECT_THAT(both[1].shape, ElementsAre(3, 5, 6));
  EXPECT_THAT(both[1].offset, ElementsAre(0, 1, 0, 0));
  EXPECT_EQ(stored::fault(both, std::vector<int64_t>{3, 2, 5, 6}), "");
  const StoredParts down = stored_of(files, "mlp.experts.down_proj", {3, 6, 5});
  EXPECT_EQ(down.at(0).tensor, "model.layers.1.moe.down_proj.weight");
  const StoredParts bias = stored_of(files, "mlp.gate.e_score_correction_bias", {3});
  EXPECT_EQ(bias.at(0).tensor, "model.layers.1.moe.router_bias");
  EXPECT_THAT(bias[0].shape, ElementsAre(1, 3));
  EXPECT_EQ(stored::fault(bias, std::vector<int64_t>{3}), "");
}

// A parameter that a transform adds, such as a LoRA factor, is not part of the joined tensor.
TEST(DecoderFiles, JoinTheModelsOwnParametersAlone) {
  decoder::Files files;
  files.joined("self_attn.qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
  EXPECT_TRUE(stored_of(files, "self_attn.q_proj.lora_A.weight", {2, 6}).empty());
}

TEST(DecoderFiles, RefuseToJoinWhatTheModelLacks) {
  decoder::Files files;
  files.joined("mlp.all", {"mlp.gate_proj", "mlp.third_proj"});
  const auto read = [&] { stored_of(files, "mlp.gate_proj.weight", std::vector<int64_t>{5, 6}); };
  EXPECT_THAT(tests::thrown_by(read),
              ::testing::HasSubstr("a rule in Files::joined joins 'model.layers.1.mlp.third_proj.weight', "
                                   "which is not a parameter of the model"));
}

TEST(DecoderPlan, NamesLayersOneByOneWhereTheyDiffer) {
  decoder::Model model = small_decoder();
  std::get<decoder::Attention>(model.layers[0].mixer).head_norm = decoder::Attention::HeadNorm::whole;
  std::get<decoder::Mlp>(model.layers[1].feed_forward).gated = false;
  model.head_bias = true;
  EXPECT_THAT(decoder::tensor_plan(model), ElementsAre(Pair("model.embed_tokens", "rowwise_rep"),
                                                       Pair("model.layers.1.self_attn.q_proj", "colwise"),
                                                       Pair("model.layers.1.self_attn.k_proj", "colwise"),
                                                       Pair("model.layers.1.self_attn.v_proj", "colwise"),
                                                       Pair("model.layers.*.mlp.gate_proj", "colwise"),
                                                       Pair("model.layers.*.mlp.up_proj", "colwise"),
                                                       Pair("model.layers.1.self_attn.o_proj", "rowwise"),
                                                       Pair("model.layers.*.mlp.down_proj", "rowwise")));
}

// 6 FLOPs per weight of a product, and per element of the causal scores.
TEST(DecoderOperations, FollowTheLayers) {
  decoder::Model model = small_decoder();
  std::get<decoder::Mlp>(model.layers[1].feed_forward).gated = false;
  model.layers[0].mixer = decoder::Absent{};
  constexpr double attention = 6 * (2 * 12 + 2 * 4) + 2 * 12 * 20 / 2.0;
  EXPECT_EQ(decoder::make_spec({.model = model})->flops_per_token(20),
            6 * (attention + 3 * 6 * 5 + 2 * 6 * 5 + 6 * 11));
}

// A recurrence: y[t] = x[t] + 0.7 * y[t - 1].
class Decay : public decoder::Mixer {
 public:
  struct State : decoder::MixerState {
    void clear() override { last.reset(); }
    at::Tensor last;
  };
  std::string_view kind() const override { return "decay"; }
  std::unique_ptr<decoder::MixerState> keep_state() override {
    auto state = std::make_unique<State>();
    state_ = state.get();
    return state;
  }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    std::vector<at::Tensor> rows;
    at::Tensor last = state_ != nullptr ? state_->last : at::Tensor();
    for (int64_t i = 0; i < x.size(0); ++i) {
      const bool begins = state_ == nullptr && i % batch.tokens.size(1) == 0;
      last = begins || !last.defined() ? x[i] : x[i] + 0.7 * last;
      rows.push_back(last);
    }
    if (state_ != nullptr) state_->last = last;
    return at::stack(rows);
  }

 private:
  State* state_ = nullptr;
};

struct DecayMaker : decoder::MixerMaker {
  std::string name() const override { return "mixer"; }
  std::unique_ptr<decoder::Mixer> make(int64_t, double, const at::TensorOptions&) const override {
    return std::make_unique<Decay>();
  }
  double multiplications(int64_t width, int64_t) const override { return static_cast<double>(width); }
};

decoder::Model decaying(bool attends) {
  decoder::Model model = small_decoder();
  model.layers[0].mixer = std::make_shared<DecayMaker>();
  if (!attends) model.layers[1].mixer = model.layers[0].mixer;
  return model;
}

TEST(DecoderMixer, CountsItsOwnOperations) {
  EXPECT_EQ(decoder::make_spec({.model = decaying(false)})->flops_per_token(20),
            6.0 * (2 * 6 + 2 * 3 * 6 * 5 + 6 * 11));
}

TEST(DecoderMixer, KeepsItsStateWhileTokensAreGenerated) {
  for (const bool attends : {true, false}) {
    at::manual_seed(3);
    const auto spec = decoder::make_spec({.model = decaying(attends)});
    Units whole = spec->make_units(at::kFloat);
    at::manual_seed(3);
    Units cached = spec->make_units(at::kFloat);
    expect_same_tokens(whole, cached);
  }
}

TEST(DecoderMixer, IsRefusedWhereRanksHoldPartsOfTheTokens) {
  const Units units = decoder::make_spec({.model = decaying(true)})->make_units(at::kMeta);
  std::string said;
  dynamic_cast<ModuleUnit&>(*units[1]).visit([&](const std::string& path, Module& module) {
    if (module.traits().role != Role::mixer) return;
    said = thrown_by([&] { refuse_mixed_tokens(module, path, "cp", "run.yaml:3", "set cp_size: 1"); });
  });
  EXPECT_THAT(said, ::testing::HasSubstr("'model.layers.0.mixer' (decay)"));
}

}  // namespace
}  // namespace heddle::tests
