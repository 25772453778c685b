// Communication and sums of the regions, in forward and backward, also for sizes that do not divide.
#include "plugins/tensor/regions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <functional>

#include "heddle/nn/token_loss.h"
#include "heddle/transport/threads.h"
#include "plugins/tensor/parts.h"

namespace heddle::tests {
namespace {

using tensor::Part;

void on_ranks(int size, const std::function<void(Communicator&, double rank)>& body) {
  ThreadWorld::run(size, [&](Rendezvous& rendezvous) {
    const std::vector<Axis> axes = {{"tp", size}};
    const DeviceMesh mesh = mesh::build(axes, rendezvous, "test: regions");
    body(mesh.group("tp"), rendezvous.rank());
  });
}

at::Tensor numbers(int64_t rows, int64_t columns) {
  return at::arange(rows * columns, at::kFloat).view({rows, columns});
}

at::Tensor gradient_of(const at::Tensor& leaf, const at::Tensor& y, const at::Tensor& dy) {
  y.backward(dy);
  return leaf.grad();
}

TEST(TensorParts, GiveTheFirstRanksOneMore) {
  EXPECT_EQ(tensor::part_of(10, 4, 0), (Part{0, 3}));
  EXPECT_EQ(tensor::part_of(10, 4, 1), (Part{3, 3}));
  EXPECT_EQ(tensor::part_of(10, 4, 2), (Part{6, 2}));
  EXPECT_EQ(tensor::part_of(10, 4, 3), (Part{8, 2}));
}

TEST(TensorParts, GiveTheFirstRanksWholeChunksOfRows) {
  EXPECT_EQ(tensor::rows_of(21, 4, 2), (Part{12, 6}));
  EXPECT_EQ(tensor::rows_of(21, 4, 3), (Part{18, 3}));
  EXPECT_EQ(tensor::rows_of(1, 4, 0), (Part{0, 1}));
  EXPECT_EQ(tensor::rows_of(1, 4, 3), (Part{1, 0}));
}

// Megatron's golden values: the sum of the ranks 0 to 3 is 6.
TEST(TensorRegions, SumTheGradientOfASharedTensor) {
  on_ranks(4, [](Communicator& ranks, double rank) {
    at::Tensor x = numbers(3, 5).requires_grad_();
    const at::Tensor y = tensor::share(x, ranks);
    EXPECT_TRUE(at::equal(y, x));
    EXPECT_TRUE(at::equal(gradient_of(x, y, at::full({3, 5}, rank)), at::full({3, 5}, 6.0)));
  });
}

TEST(TensorRegions, PassTheGradientOfASum) {
  on_ranks(4, [](Communicator& ranks, double rank) {
    at::Tensor x = at::full({3, 5}, rank).requires_grad_();
    const at::Tensor y = tensor::sum(x, ranks);
    EXPECT_TRUE(at::equal(y, at::full({3, 5}, 6.0)));
    EXPECT_TRUE(at::equal(x, at::full({3, 5}, rank)));  // still referenced, so it is not overwritten
    EXPECT_TRUE(at::equal(gradient_of(x, y, numbers(3, 5)), numbers(3, 5)));
  });
}

TEST(TensorRegions, SumOrSliceTheGradientOfGatheredRows) {
  for (const int64_t rows : {8, 9, 3, 1})
    for (const auto kind : {tensor::Gradient::part, tensor::Gradient::whole}) {
      SCOPED_TRACE(rows);
      on_ranks(4, [&](Communicator& ranks, double) {
        const Part mine = tensor::rows_of(rows, 4, ranks.rank());
        const at::Tensor all = numbers(rows, 3);
        at::Tensor x = all.narrow(0, mine.begin, mine.count).clone().requires_grad_();
        const at::Tensor y = tensor::gather_rows(x, rows, ranks, kind);
        EXPECT_TRUE(at::equal(y, all));
        const double copies = kind == tensor::Gradient::part ? 4 : 1;
        EXPECT_TRUE(at::equal(gradient_of(x, y, all), all.narrow(0, mine.begin, mine.count) * copies));
      });
    }
}

TEST(TensorRegions, GatherTheGradientOfRowsOfASum) {
  for (const int64_t rows : {8, 9, 3, 1}) {
    SCOPED_TRACE(rows);
    on_ranks(4, [&](Communicator& ranks, double rank) {
      const Part mine = tensor::rows_of(rows, 4, ranks.rank());
      const at::Tensor all = numbers(rows, 3);
      at::Tensor x = (all * rank).requires_grad_();
      const at::Tensor y = tensor::sum_to_rows(x, ranks);
      EXPECT_TRUE(at::equal(y, all.narrow(0, mine.begin, mine.count) * 6));
      EXPECT_TRUE(at::equal(gradient_of(x, y, all.narrow(0, mine.begin, mine.count)), all));
    });
  }
}

TEST(TensorRegions, SliceAndGatherInEachOthersBackward) {
  on_ranks(3, [](Communicator& ranks, double) {
    const at::Tensor all = numbers(7, 8);
    const Part rows = tensor::rows_of(7, 3, ranks.rank()), columns = tensor::part_of(8, 3, ranks.rank());
    const at::Tensor my_rows = all.narrow(0, rows.begin, rows.count);
    const at::Tensor my_columns = all.narrow(1, columns.begin, columns.count);
    at::Tensor x = all.clone().requires_grad_();
    at::Tensor y = tensor::slice_rows(x, ranks);
    EXPECT_TRUE(at::equal(y, my_rows));
    EXPECT_TRUE(at::equal(gradient_of(x, y, my_rows), all));
    x = all.clone().requires_grad_();
    y = tensor::slice_columns(x, ranks);
    EXPECT_TRUE(at::equal(y, my_columns));
    EXPECT_TRUE(at::equal(gradient_of(x, y, my_columns), all));
    x = my_columns.clone().requires_grad_();
    y = tensor::gather_columns(x, 8, ranks);
    EXPECT_TRUE(at::equal(y, all));
    EXPECT_TRUE(at::equal(gradient_of(x, y, all), my_columns));
  });
}

// Megatron's golden values: logits 0 to 7, four times on each of four ranks.
TEST(SplitTokenLoss, EqualsMegatronsGoldenValues) {
  on_ranks(4, [](Communicator& ranks, double) {
    const at::Tensor hidden = at::ones({1, 1}), weight = at::arange(8, at::kFloat).repeat(4).view({32, 1});
    for (int64_t target = 0; target < 128; target += 11) {
      const at::Tensor loss = model::linear_token_loss(hidden, weight, at::full({1}, target, at::kLong),
                                                       {32 * ranks.rank(), 128, &ranks});
      EXPECT_NEAR(loss.item<double>(), 10.2309 - static_cast<double>(target % 8), 1e-4);
    }
  });
}

// 3 * 2^22 elements: several blocks of rows on every rank.
TEST(SplitTokenLoss, EqualsTheWholeLossWithItsGradientsOverSeveralBlocks) {
  const int64_t tokens = 70, words = (1 << 17) + 3;
  const at::Tensor hidden = (numbers(tokens, 2) * 0.37).sin().to(at::kDouble);
  const at::Tensor weight = (numbers(words, 2) * 0.71).cos().to(at::kDouble);
  at::Tensor labels = at::arange(tokens, at::kLong) * 1871;
  labels[3] = Batch::kIgnore;
  at::Tensor h = hidden.clone().requires_grad_(), w = weight.clone().requires_grad_();
  const at::Tensor want = model::linear_token_loss(h, w, labels);
  want.backward(at::full({1}, 0.25));
  on_ranks(2, [&](Communicator& ranks, double) {
    const Part mine = tensor::part_of(words, 2, ranks.rank());
    at::Tensor my_h = hidden.clone().requires_grad_();
    at::Tensor my_w = weight.narrow(0, mine.begin, mine.count).clone().requires_grad_();
    const at::Tensor loss =
        model::linear_token_loss(tensor::share(my_h, ranks), my_w, labels, {mine.begin, words, &ranks});
    EXPECT_NEAR(loss.item<double>() / want.item<double>(), 1, 1e-12);
    loss.backward(at::full({1}, 0.25));
    EXPECT_TRUE(my_h.grad().allclose(h.grad(), 1e-10, 1e-12));
    EXPECT_TRUE(my_w.grad().allclose(w.grad().narrow(0, mine.begin, mine.count), 1e-10, 1e-12));
  });
}

TEST(SplitTokenLoss, RefusesALabelOutsideTheWholeVocabulary) {
  EXPECT_THROW(on_ranks(2,
                        [](Communicator& ranks, double) {
                          model::linear_token_loss(at::ones({1, 1}), at::ones({4, 1}),
                                                   at::full({1}, 8, at::kLong),
                                                   {4 * ranks.rank(), 8, &ranks});
                        }),
               Error);
}

}  // namespace
}  // namespace heddle::tests
