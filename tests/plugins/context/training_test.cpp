// Context parallelism: equal to one rank by every method, beside every strategy, tensor parallelism and
// pipelines.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "plugins/context/sequence.h"
#include "plugins/pipelines.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

using Methods = std::vector<std::string>;
const Methods kMethods = {"allgather", "ring", "ulysses"};

std::string block(const std::string& method) {
  return "context: {method: " + method + "}";
}

std::vector<Axis> mesh_of(int replicas, int shards, int cp, int tp = 1, int pp = 1) {
  return {{"pp", pp}, {"dp_replicate", replicas}, {"dp_shard", shards}, {"cp", cp}, {"tp", tp}};
}

// Sequences of seven tokens: no number of ranks divides them.
Training over_cp(Training run, std::vector<Axis> axes, const std::string& method,
                 const std::string& strategy = "fsdp2") {
  run.strategy = strategy;
  run.section = strategy == "fsdp2" ? kFloat : "{}";
  run.axes = std::move(axes);
  run.parallelizers.emplace_back("context", block(method));
  return run;
}

std::vector<int64_t> own_tokens(std::vector<int64_t> tokens, std::vector<int> documents,
                                context::Place place) {
  Batch batch;
  batch.tokens = at::tensor(tokens, at::kLong).view({1, -1});
  if (!documents.empty()) batch.documents = at::tensor(documents, at::kInt);
  context::cut(batch, place);
  const int64_t* const own = batch.tokens.const_data_ptr<int64_t>();
  return {own, own + batch.tokens.numel()};
}

TEST(ContextSequence, IsDealtFromBothEnds) {
  using context::Cut;
  using Tokens = std::vector<int64_t>;
  const Tokens seven = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(own_tokens(seven, {}, {0, 2, Cut::balanced}), (Tokens{1, 2, 7, 0}));
  EXPECT_EQ(own_tokens(seven, {}, {1, 2, Cut::balanced}), (Tokens{3, 4, 5, 6}));
  EXPECT_EQ(own_tokens(seven, {}, {2, 4, Cut::balanced}), (Tokens{3, 6}));
  EXPECT_EQ(own_tokens(seven, {}, {1, 2, Cut::contiguous}), (Tokens{5, 6, 7, 0}));
  // Each document by itself, where 2 * ranks divide all.
  const Tokens twelve = {1, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 18};
  EXPECT_EQ(own_tokens(twelve, {0, 4, 12}, {0, 2, Cut::balanced}), (Tokens{1, 4, 11, 12, 17, 18}));
  EXPECT_EQ(own_tokens(twelve, {0, 4, 12}, {1, 2, Cut::balanced}), (Tokens{2, 3, 13, 14, 15, 16}));
}

TEST(ContextSequence, PaddingIsADocumentAndPositionsRestart) {
  Batch batch;
  batch.tokens = at::arange(1, 15).view({2, 7});
  batch.documents = at::tensor({0, 3, 7, 12, 14}, at::kInt);
  context::cut(batch, {1, 2, context::Cut::contiguous});
  EXPECT_EQ(batch.whole_sequence, 8);
  EXPECT_TRUE(at::equal(batch.documents, at::tensor({0, 3, 7, 8, 13, 15, 16}, at::kInt)));
  EXPECT_TRUE(at::equal(batch.positions, at::tensor({1, 2, 3, 0, 4, 0, 1, 0}, at::kLong).view({2, 4})));
}

// Documents of all lengths, one that is longer than all others, and whole rows.
TEST(ContextSequence, RanksHaveEqualWorkAndEveryTokenOnce) {
  const std::vector<std::vector<int32_t>> rows = {
      {0, 4096},
      {0, 1000, 1003, 1777, 4000, 4096},
      {0, 3500, 3600, 3651, 3852, 4096},
      {0, 64, 128, 192, 1280, 4096},
      [] {
        std::vector<int32_t> many = {0};
        for (int32_t i = 0; many.back() < 4096; ++i)
          many.push_back(std::min(4096, many.back() + 17 + i * 37 % 211));
        return many;
      }()};
  for (const auto& documents : rows)
    for (const int ranks : {2, 4, 8}) {
      const context::Assignment all = context::assign(documents, ranks, context::Cut::balanced);
      std::vector<int> holders(4096);
      int64_t most = 0, sum = 0;
      for (const auto& stretches : all) {
        int64_t tokens = 0;
        for (const context::Stretch& one : stretches) {
          tokens += one.end - one.begin;
          for (int32_t token = one.begin; token < one.end; ++token) ++holders[static_cast<size_t>(token)];
          EXPECT_EQ(context::document_at(documents, one.begin), context::document_at(documents, one.end - 1));
        }
        EXPECT_EQ(tokens, 4096 / ranks);
        const int64_t work = context::work_of(stretches, documents);
        most = std::max(most, work);
        sum += work;
      }
      EXPECT_EQ(std::count(holders.begin(), holders.end(), 1), 4096);
      EXPECT_LE(static_cast<double>(most) * ranks / static_cast<double>(sum), 1.05)
          << ranks << " ranks, " << documents.size() - 1 << " documents";
    }
}

// Each row is packed otherwise; some rows are one document.
void pack(Batch& batch, int) {
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1);
  std::vector<int> offsets;
  for (int64_t row = 0; row < rows; ++row) {
    const int begin = static_cast<int>(row * length);
    offsets.push_back(begin);
    if (row % 3 != 2) offsets.push_back(begin + 2 + static_cast<int>(row % 2));
    if (row % 3 == 0) offsets.push_back(begin + static_cast<int>(length) - 1);
  }
  offsets.push_back(static_cast<int>(rows * length));
  batch.documents = at::tensor(offsets, at::kInt);
}

Training packed(const std::string& model = "llama") {
  Training run = four_heads(model);
  run.change_batch = pack;
  return run;
}

// Every document in a row of its own.
void unpack(Batch& batch, int slice) {
  pack(batch, slice);
  const int64_t length = batch.tokens.size(1), documents = batch.documents.numel() - 1;
  const int32_t* const offsets = batch.documents.const_data_ptr<int32_t>();
  const at::Tensor tokens = at::zeros({documents, length}, at::kLong);
  const at::Tensor labels = at::full({documents, length}, Batch::kIgnore, at::kLong);
  for (int64_t i = 0; i < documents; ++i) {
    const int64_t count = offsets[i + 1] - offsets[i];
    tokens[i].narrow(0, 0, count).copy_(batch.tokens.view({-1}).narrow(0, offsets[i], count));
    labels[i].narrow(0, 0, count).copy_(batch.labels.view({-1}).narrow(0, offsets[i], count));
  }
  batch = {};
  batch.tokens = tokens;
  batch.labels = labels;
}

TEST(PackedDocuments, TrainAsTheSameDocumentsAlone) {
  for (const std::string& model : {"llama", "qwen3"}) {
    Training alone = four_heads(model);
    alone.change_batch = unpack;
    expect_close(train(packed(model)), train(alone));
  }
}

TEST(PackedDocuments, EqualOneRankUnderContextParallelism) {
  const Outcome want = train(packed());
  for (const std::string& method : kMethods)
    for (const int cp : {2, 4}) {
      SCOPED_TRACE(method + " " + std::to_string(cp));
      expect_close(train(over_cp(packed(), mesh_of(1, 1, cp), method)), want);
    }
}

TEST(PackedDocuments, EqualOneRankBesideTensorParallelism) {
  const Outcome want = train(packed());
  for (const std::string& method : kMethods) {
    SCOPED_TRACE(method);
    Training run = packed();
    run.parallelizers = {{"tensor", kSequence}};
    expect_close(train(over_cp(run, mesh_of(1, 1, 2, 2), method)), want);
  }
}

TEST(PackedDocuments, EqualOneRankInAPipelineAndWithCheckpointing) {
  Training piped = pipeline("1f1b", 2, 3, 2);
  piped.change_batch = pack;
  Training one = piped;
  one.strategy = "single";
  one.section = "{}";
  one.axes.clear();
  one.make_schedule = nullptr;
  one.pipeline = {};
  const Outcome want = train(one);
  piped.checkpointing = ActivationCheckpointing::full;
  for (const std::string& method : {"allgather", "ring"})
    expect_close(train(over_cp(piped, mesh_of(1, 1, 2, 1, 2), method)), want);
}

TEST(Context, EqualsOneRankUnderFsdp2) {
  for (const std::string& model : {"llama", "qwen3"}) {
    const Outcome want = train(four_heads(model));
    for (const std::string& method : kMethods)
      for (const int cp : {2, 4}) {
        SCOPED_TRACE(model + " " + method + " " + std::to_string(cp));
        expect_close(train(over_cp(four_heads(model), mesh_of(1, 1, cp), method)), want);
      }
  }
}

TEST(Context, EqualsOneRankOnThreeRanks) {
  const Outcome want = train(four_heads());
  for (const std::string& method : {"allgather", "ring"})
    expect_close(train(over_cp(four_heads(), mesh_of(1, 1, 3), method)), want);
}

TEST(Context, EqualsOneRankUnderHybridSharding) {
  const Outcome want = train(four_heads());
  for (const std::string& method : kMethods) {
    Training run = over_cp(four_heads(), mesh_of(2, 2, 2), method);
    run.microbatches = 1;
    expect_close(train(run), want);
  }
}

TEST(Context, EqualsOneRankUnderMegatronsStrategies) {
  Training one = four_heads();
  const Outcome want = train(one);
  one.microbatches = 3;
  for (const std::string& method : kMethods) {
    SCOPED_TRACE(method);
    expect_close(train(over_cp(one, mesh_of(1, 2, 2), method, "megatron")), want);
    expect_close(train(over_cp(one, {{"dp", 2}, {"cp", 2}, {"tp", 1}}, method, "megatron_fsdp")), want);
  }
}

TEST(Context, EqualsOneRankBesideTensorParallelism) {
  const Outcome want = train(four_heads());
  for (const std::string& method : kMethods) {
    Training run = four_heads();
    run.parallelizers = {{"tensor", kSequence}};
    expect_close(train(over_cp(run, mesh_of(1, 1, 2, 2), method)), want);
  }
}

TEST(Context, EqualsOneRankInAPipeline) {
  Training piped = pipeline("1f1b", 2, 3, 2);
  const Outcome want = train([&] {
    Training one = piped;
    one.strategy = "single";
    one.section = "{}";
    one.axes.clear();
    one.make_schedule = nullptr;
    one.pipeline = {};
    return one;
  }());
  for (const std::string& method : {"allgather", "ring"})
    expect_close(train(over_cp(piped, mesh_of(1, 1, 2, 1, 2), method)), want);
}

TEST(Context, EqualsOneRankWithActivationCheckpointing) {
  const Outcome want = train(four_heads());
  for (const auto kind : {ActivationCheckpointing::full, ActivationCheckpointing::selective})
    for (const std::string& method : kMethods) {
      Training run = over_cp(four_heads(), mesh_of(1, 1, 2), method);
      run.checkpointing = kind;
      expect_close(train(run), want);
    }
}

// The labels of all but the first tokens are left out: the last parts have none.
TEST(Context, EqualsOneRankWherePartsHaveNoLabel) {
  const auto few = [](Batch& batch, int) {
    batch.labels.narrow(1, 2, batch.labels.size(1) - 2).fill_(Batch::kIgnore);
  };
  Training one = four_heads();
  one.change_batch = few;
  const Outcome want = train(one);
  for (const std::string& method : kMethods)
    expect_close(train(over_cp(one, mesh_of(1, 1, 4), method)), want);
}

TEST(Context, TrainsInBfloat16AsOneRankDoes) {
  const std::string half = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}";
  Training one = four_heads();
  one.strategy = "fsdp2";
  one.section = half;
  one.axes = mesh_of(1, 1, 1);
  const Outcome want = train(one);
  for (const std::string& method : kMethods) {
    Training run = over_cp(four_heads(), mesh_of(1, 1, 2), method);
    run.section = half;
    const Outcome got = train(run);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i] / want.losses[i], 1, 1e-2);
      EXPECT_NEAR(got.norms[i] / want.norms[i], 1, 5e-2);
    }
  }
}

TEST(Context, RefusesHeadsThatDoNotDivide) {
  EXPECT_EQ(error_of([] { train(over_cp(four_heads(), mesh_of(1, 1, 3), "ulysses")); }),
            "error[config] distributed.context.method: method ulysses needs a number of heads, of "
            "queries and of keys, that cp_size divides: a rank has 8, cp_size is 3\n"
            "  hint: set method: allgather or ring, or a cp_size that divides the heads");
}

}  // namespace
}  // namespace heddle::tests
