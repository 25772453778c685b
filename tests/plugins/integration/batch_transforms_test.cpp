// Parallelizers that change batches: equal results in every topology, labels counted before, and misuse
// refused.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plugins/pipelines.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

using Change = std::function<void(Batch&, const DeviceMesh&)>;

class Changer : public IParallelizer {
 public:
  Changer(std::string name, int place, Change change)
      : name_(std::move(name)), place_(place), change_(std::move(change)) {}
  Needs needs() const override { return {}; }
  std::string name() const override { return name_; }
  std::vector<Placed> apply(Units&, const DeviceMesh&) override { return {}; }
  std::optional<int> transform_order() const override { return place_; }
  std::vector<SideOutput*> side_outputs() override { return {&seen_}; }
  void transform(Batch& batch, const DeviceMesh& mesh) override {
    seen_.add(at::full({1}, static_cast<double>(batch.tokens.numel())), batch);
    change_(batch, mesh);
  }

 private:
  Metric seen_{"changer/seen", Combine::sum, {"dp"}};
  std::string name_;
  int place_;
  Change change_;
};

std::function<std::shared_ptr<IParallelizer>()> changer(const std::string& name, int place, Change change) {
  return [=] { return std::make_shared<Changer>(name, place, change); };
}

void next_token(Batch& batch, const DeviceMesh&) {
  batch.tokens = (batch.tokens + 1).remainder(50);
}
void twice_the_token(Batch& batch, const DeviceMesh&) {
  batch.tokens = (batch.tokens * 2).remainder(50);
}
void no_label_of_even_tokens(Batch& batch, const DeviceMesh&) {
  batch.labels = batch.labels.masked_fill(batch.tokens.remainder(2).eq(0), Batch::kIgnore);
}

TEST(BatchTransforms, ApplyInOrderToEveryBatch) {
  Training by_hand = single_model();
  by_hand.change_batch = [](Batch& batch, int) {
    batch.tokens = ((batch.tokens + 1).remainder(50) * 2).remainder(50);
  };
  const Outcome want = train(by_hand);
  for (const bool swapped : {false, true}) {  // the order in the plan does not matter
    Training run = single_model();
    run.own_parallelizers = {changer("one", 10, next_token), changer("two", 20, twice_the_token)};
    if (swapped) std::swap(run.own_parallelizers[0], run.own_parallelizers[1]);
    expect_bit_equal(train(run), want);
  }
}

TEST(BatchTransforms, ApplyAfterLabelsAreCounted) {
  Training before = single_model(), after = single_model();
  before.steps = after.steps = 1;
  int64_t kept = 0, all = 0;
  before.change_batch = [&](Batch& batch, int) {
    all = batch.labels.ne(Batch::kIgnore).sum().item<int64_t>();
    batch.labels = batch.labels.masked_fill(batch.tokens.remainder(2).eq(0), Batch::kIgnore);
    kept = batch.labels.ne(Batch::kIgnore).sum().item<int64_t>();
  };
  after.own_parallelizers = {changer("cut", 0, no_label_of_even_tokens)};
  const Outcome want = train(before), got = train(after);
  ASSERT_LT(kept, all);
  EXPECT_NEAR(got.losses[0] * static_cast<double>(all), want.losses[0] * static_cast<double>(kept), 1e-4);
}

TEST(BatchTransforms, EqualOneRankInEveryTopology) {
  const auto with = [](Training run) {
    run.own_parallelizers = {changer("one", 10, next_token), changer("cut", 20, no_label_of_even_tokens)};
    return run;
  };
  const Outcome want = train(with(single_model()));
  EXPECT_EQ(want.sides.at("changer/seen")[0], 2 * 84);
  Training many = single_model();
  many.strategy = "ddp";
  many.section = "{}";
  many.axes = {{"dp", 2}};
  many.microbatches = 3;
  expect_close(train(with(many)), want);
  expect_close(train(with(pipeline("1f1b", 2, 3, 2))), want);
}

// A split along the sequence, without attention: seven tokens on two ranks of cp.
TEST(BatchTransforms, SplitTheSequenceOverAnAxis) {
  const auto cut = [](Batch& batch, const DeviceMesh& mesh) {
    const int64_t length = batch.tokens.size(1), half = (length + 1) / 2;
    const int64_t first = mesh.rank("cp") == 0 ? 0 : half,
                  count = mesh.rank("cp") == 0 ? half : length - half;
    batch.tokens = batch.tokens.narrow(1, first, count).contiguous();
    batch.labels = batch.labels.narrow(1, first, count).contiguous();
  };
  std::vector<Axis> axes = shards(2);
  axes[3].size = 2;
  Training run = toy("fsdp2", axes);
  run.microbatches = 2;
  run.own_parallelizers = {changer("context", 200, cut)};
  const Outcome got = train(run);
  EXPECT_EQ(got.sides.at("changer/seen")[0],
            84);  // each batch before the split, so ranks of cp have the same batch
  Outcome want = train(toy("single", {}));
  want.sides = got.sides;
  expect_close(got, want);
}

TEST(BatchTransforms, RefuseMisuseByName) {
  const auto refusal = [](std::vector<std::function<std::shared_ptr<IParallelizer>()>> changers) {
    Training run = single_model();
    run.own_parallelizers = std::move(changers);
    return error_of([&] { train(run); });
  };
  EXPECT_EQ(
      refusal({changer("one", 10, next_token), changer("two", 10, twice_the_token)}),
      "error[plugin_conflict] IParallelizer::transform: 'one' and 'two' both change batches at the place "
      "10, so nothing says which comes first\n  hint: give one of them another transform_order()");
  EXPECT_EQ(
      refusal({changer("greedy", 0, [](Batch& batch, const DeviceMesh&) { batch.tokens.add_(1); })}),
      "error[plugin_failed] IParallelizer::transform: 'greedy' changed the batch's tokens in place, which "
      "belong to the data\n  hint: give the batch a new tensor");
  EXPECT_EQ(refusal({changer("far", 0,
                             [](Batch& batch, const DeviceMesh&) {
                               batch.tokens = at::full_like(batch.tokens, 1000000);
                             })}),
            "error[plugin_failed] IParallelizer::transform: 'far' gave the batch the token 1000000, and the "
            "model's embedding has 53 rows\n  hint: give tokens of the vocabulary, as the batch has them");
  EXPECT_EQ(
      refusal({changer(
          "short", 0, [](Batch& batch, const DeviceMesh&) { batch.labels = batch.labels.narrow(0, 0, 5); })}),
      "error[plugin_failed] IParallelizer::transform: 'short' left 5 rows of the batch's labels, which has "
      "12\n  hint: keep the rows of a batch: change them, or cut along the sequence");
}

}  // namespace
}  // namespace heddle::tests
