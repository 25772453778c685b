// Selection of keys in sparse latent attention, and layers that share a selection.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "heddle/decoder/family.h"
#include "heddle/nn/attention_core.h"
#include "lib/decoder/latent/choose_keys.h"
#include "lib/run/generate/generate.h"
#include "nn/against_aten.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

using KeyPlaces = std::vector<int>;

constexpr int64_t kSparseRows = 2, kSparseLength = 11, kSparseTokens = kSparseRows * kSparseLength,
                  kSparseHeads = 3, kSparseDim = 4;

// Returns, for each token, the first token of its document.
KeyPlaces begins_of(const at::Tensor& documents) {
  KeyPlaces out;
  for (int64_t token = 0; token < kSparseTokens; ++token) {
    const bool begins =
        documents.defined() ? documents.eq(token).any().item<bool>() : token % kSparseLength == 0;
    out.push_back(begins ? static_cast<int>(token) : out.back());
  }
  return out;
}

// Reference selection for one token: the top-k keys by score, ties by lowest index, in ascending order.
KeyPlaces plain_choice(const at::Tensor& scores, int begin, int token, int64_t top_k) {
  KeyPlaces keys(token - begin + 1);
  std::iota(keys.begin(), keys.end(), begin);
  std::stable_sort(keys.begin(), keys.end(), [&](int a, int b) {
    return scores[token][a].item<double>() > scores[token][b].item<double>();
  });
  if (static_cast<int64_t>(keys.size()) > top_k) keys.resize(static_cast<size_t>(top_k));
  std::sort(keys.begin(), keys.end());
  return keys;
}

at::Tensor plain_scores(const decoder::KeyScores& in) {
  const at::Tensor q = in.q.view({kSparseTokens, kSparseHeads, kSparseDim});
  const at::Tensor each = at::relu(at::einsum("thd,sd->ths", {q, in.k}) / 2.0);  // 2 is sqrt(kSparseDim)
  return at::einsum("th,ths->ts", {in.weights, each}) / std::sqrt(3.0);
}

decoder::KeyScores some_scores() {
  at::manual_seed(3);
  return {at::randn({kSparseTokens, kSparseHeads * kSparseDim}, at::kDouble),
          at::randn({kSparseTokens, kSparseDim}, at::kDouble),
          at::randn({kSparseTokens, kSparseHeads}, at::kDouble)};
}

void expect_choice(const decoder::KeyScores& in, const at::Tensor& documents, int64_t top_k) {
  const at::Tensor got = decoder::choose_keys(in, kSparseRows, kSparseLength, documents, top_k),
                   scores = plain_scores(in);
  ASSERT_EQ(got.sizes(), (std::vector<int64_t>{kSparseTokens, top_k}));
  const KeyPlaces begins = begins_of(documents);
  for (int token = 0; token < kSparseTokens; ++token) {
    const KeyPlaces want = plain_choice(scores, begins[token], token, top_k);
    KeyPlaces have(got[token].const_data_ptr<int>(), got[token].const_data_ptr<int>() + top_k);
    std::sort(have.begin(), have.end());
    have.erase(std::unique(have.begin(), have.end()), have.end());
    EXPECT_EQ(have, want) << "token " << token;
  }
}

const at::Tensor kSparseDocuments = at::tensor({0, 2, 9, 11, 12, 22}, at::kInt);

TEST(ChooseKeys, TakesTheLargestScoresUpToTheToken) {
  for (const int64_t top_k : {1, 3, 10}) expect_choice(some_scores(), {}, top_k);
}

TEST(ChooseKeys, LooksIntoNoOtherDocument) {
  for (const int64_t top_k : {1, 3, 10}) expect_choice(some_scores(), kSparseDocuments, top_k);
}

TEST(ChooseKeys, TakesTheFirstOfEqualScores) {
  decoder::KeyScores in = some_scores();
  in.q.abs_();
  in.k.abs_().narrow(0, 3, 5).neg_();  // relu makes these scores 0
  expect_choice(in, {}, 4);
  in.weights.zero_();
  expect_choice(in, kSparseDocuments, 4);
}

// A rank of context parallelism has only some of the queries.
TEST(ChooseKeys, EqualsAllQueriesForSomeQueries) {
  decoder::KeyScores in = some_scores();
  const at::Tensor places = at::tensor({1, 2, 9, 10, 21, 11}, at::kLong);
  for (const at::Tensor& documents : {at::Tensor(), kSparseDocuments}) {
    const at::Tensor all = decoder::choose_keys(in, kSparseRows, kSparseLength, documents, 3);
    const decoder::KeyScores some = {in.q.index_select(0, places), in.k, in.weights.index_select(0, places)};
    const at::Tensor got = decoder::choose_keys(some, kSparseRows, kSparseLength, documents, 3, places);
    EXPECT_TRUE(at::equal(got, all.index_select(0, places)));
  }
}

decoder::Model sparse_model(int64_t top_k, const std::vector<bool>& shared) {
  decoder::Model model;
  model.vocabulary = 13, model.width = 12, model.init_std = 0.3;
  decoder::Latent latent{.heads = 2, .rank = 7, .query_rank = 6, .plain = 3, .rotary = 4, .value = 5};
  for (const bool of_layer_before : shared) {
    latent.indexer = {.heads = 3, .head_dim = 6, .top_k = top_k, .of_layer_before = of_layer_before};
    model.layers.push_back({latent, decoder::Mlp{.width = 9}});
  }
  return model;
}

Units sparse_units(const decoder::Model& model) {
  at::manual_seed(4);
  return decoder::make_spec({.model = model})->make_units(at::kDouble);
}

Batch sparse_tokens() {
  Batch batch;
  batch.tokens = at::arange(2 * kSparseLength, at::kLong).remainder(13).view({2, kSparseLength});
  batch.labels = batch.tokens.roll({-1}, {1});
  return batch;
}

TEST(SparseLatent, SeesAllKeysOfRowsThatAreNotLonger) {
  const Batch batch = sparse_tokens();
  Units sparse = sparse_units(sparse_model(kSparseLength, {false})),
        all = sparse_units(sparse_model(kSparseLength + 9, {false}));
  EXPECT_TRUE(at::equal(logits_of(sparse)(batch), logits_of(all)(batch)));
  Units fewer = sparse_units(sparse_model(kSparseLength - 1, {false}));
  EXPECT_FALSE(at::equal(logits_of(fewer)(batch), logits_of(all)(batch)));
}

TEST(SparseLatent, GivesItsIndexerNoGradient) {
  Units units = sparse_units(sparse_model(3, {false, true}));
  logits_of(units)(sparse_tokens()).sum().backward();
  int still = 0;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      const bool of_indexer = slot.name.find(".indexer.") != std::string::npos;
      still += of_indexer ? 1 : 0;
      EXPECT_EQ(slot.trainable(), !of_indexer) << slot.name;
      EXPECT_EQ(slot.tensor->grad().defined(), !of_indexer) << slot.name;
    }
  EXPECT_EQ(still, 5);  // the second layer has no indexer
}

TEST(SparseLatent, CarriesTheChoiceToTheLayersThatShareIt) {
  Units units = sparse_units(sparse_model(3, {false, true, true, false}));
  const Batch batch = sparse_tokens();
  Tensors flow = units[0]->forward({}, batch);
  EXPECT_EQ(flow.size(), 1u);
  const Tensors first = flow = units[1]->forward(std::move(flow), batch);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[1].sizes(), (std::vector<int64_t>{2 * kSparseLength, 3}));
  flow = units[2]->forward(std::move(flow), batch);
  ASSERT_EQ(flow.size(), 2u);
  EXPECT_TRUE(flow[1].is_same(first[1]));
  const Tensors last = units[3]->forward(flow, batch);
  EXPECT_EQ(last.size(), 1u);
  // Checks that the layer uses the selection: another selection changes the output.
  Tensors other = flow;
  other[1] = at::arange(2 * kSparseLength, at::kInt).unsqueeze(1);
  EXPECT_FALSE(at::equal(units[3]->forward(other, batch)[0], last[0]));
}

TEST(SparseLatent, RefusesIndexersThatCannotBe) {
  const auto refusal = [](decoder::Model model) { return thrown_by([&] { sparse_units(model); }); };
  EXPECT_EQ(refusal(sparse_model(3, {true})),
            "error[config] model: the indexer of layer 0 is shared with the previous layer, which has none\n"
            "  hint: start indexer_types with full");
  decoder::Model model = sparse_model(3, {false, true});
  std::get<decoder::Latent>(model.layers[1].mixer).query_rank = 0;
  EXPECT_EQ(refusal(model),
            "error[config] model: the indexer of layer 1 needs a latent of queries\n"
            "  hint: give q_lora_rank, a number above 0");
  model = sparse_model(3, {false});
  std::get<decoder::Latent>(model.layers[0].mixer).indexer->head_dim = 3;
  EXPECT_EQ(refusal(model),
            "error[config] model: the indexer of layer 0 has heads of 3 elements, of which 4 are rotated\n"
            "  hint: set index_head_dim to at least qk_rope_head_dim");
}

}  // namespace
}  // namespace heddle::tests
