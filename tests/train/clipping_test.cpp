// Gradient norms and clipping divisors: large values, all kinds of shards, other norms.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "heddle/transport/threads.h"
#include "lib/train/optimizer/norm.h"

namespace heddle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Shard shard_of(const at::Tensor& gradient, std::vector<std::string> axes = {}) {
  Shard shard;
  shard.tensor = at::zeros_like(gradient).set_requires_grad(true);
  shard.tensor.mutable_grad() = gradient.clone();
  shard.axes = std::move(axes);
  return shard;
}

double norm_of(std::vector<Shard> shards, const DeviceMesh& mesh, double p = 2.0) {
  std::vector<Shard*> all;
  for (Shard& shard : shards) all.push_back(&shard);
  return train::GradientNorm(all, mesh, p).measure().item<double>();
}

// Runs `body` on each rank of a mesh with these axes.
void on(std::vector<Axis> axes, const std::function<void(const DeviceMesh&)>& body) {
  int ranks = 1;
  for (const Axis& axis : axes) ranks *= axis.size;
  ThreadWorld::run(ranks,
                   [&](Rendezvous& rendezvous) { body(mesh::build(axes, rendezvous, "test: clipping")); });
}

// A non-finite auxiliary loss on one rank is reported on every rank, and the norm is unchanged.
TEST(Clipping, DoubtsOfOneRankReachAllWithTheNorm) {
  for (const double p : {2.0, 3.0, kInf})
    for (const bool doubtful : {false, true})
      on({{"pp", 2}, {"dp_shard", 2}}, [&](const DeviceMesh& mesh) {
        const bool mine = doubtful && mesh.rank("dp_shard") == 1 && mesh.rank("pp") == 0;
        at::Tensor doubts = at::full({1}, mine ? 1.0 : 0.0, at::kDouble);
        Shard part = shard_of(at::full({4}, 2.0), {"dp_shard"}), whole = shard_of(at::full({4}, 2.0));
        std::vector<Shard*> all = {&part, &whole};
        const train::GradientNorm norm(all, mesh, p);
        EXPECT_EQ(norm.measure(&doubts).item<double>(), norm.measure().item<double>()) << p;
        EXPECT_EQ(doubts.item<double>() > 0, doubtful) << p;
      });
}

double norm_alone(const at::Tensor& gradient, double p = 2.0) {
  double norm = 0;
  on({{"pp", 1}, {"dp_shard", 1}},
     [&](const DeviceMesh& mesh) { norm = norm_of({shard_of(gradient)}, mesh, p); });
  return norm;
}

at::Tensor clipped(const at::Tensor& gradient, double norm, double max_norm) {
  return gradient / train::clip_divisor(at::full({1}, norm, at::kDouble), max_norm);
}

TEST(Clipping, ReportsTheNormOfBeforeAndLeavesTheOneAskedFor) {
  const at::Tensor gradient = at::full({5, 3}, 10.0);
  const double norm = norm_alone(gradient);
  EXPECT_NEAR(norm, gradient.norm().item<double>(), 1e-5);
  EXPECT_NEAR(clipped(gradient, norm, 1.0).norm().item<double>(), 1.0, 1e-6);
  EXPECT_TRUE(at::equal(clipped(gradient, norm, 100.0), gradient));
}

TEST(Clipping, DoesNotOverflowInAnyDtype) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const at::Tensor gradient = at::tensor({6e31, 4.0}, at::kDouble).to(dtype);
    for (const double p : {1.0, 2.0, 3.0, kInf}) {
      const double norm = norm_alone(gradient, p);
      EXPECT_NEAR(norm / 6e31, 1.0, 4e-3) << p;
      const at::Tensor after = clipped(gradient.to(at::kFloat), norm, 0.3);
      EXPECT_TRUE(at::isfinite(after).all().item<bool>());
      EXPECT_LE(after.abs().max().item<double>(), 0.3 * (1 + 1e-6));
    }
  }
  EXPECT_NEAR(norm_alone(at::tensor({3e200, 4e200}, at::kDouble)) / 5e200, 1.0,
              1e-12);  // squares overflow float64
}

TEST(Clipping, EqualsTheOtherRankWithAnEmptyShard) {
  on({{"dp_shard", 2}}, [](const DeviceMesh& mesh) {
    const bool first = mesh.rank("dp_shard") == 0;
    const at::Tensor mine = first ? at::tensor({3.0f, 4.0f}) : at::empty({0});
    for (const auto& [p, want] : {std::pair{2.0, 5.0}, {1.0, 7.0}, {kInf, 4.0}})
      EXPECT_NEAR(norm_of({shard_of(mine, {"dp_shard"})}, mesh, p), want, 1e-12);
    const at::Tensor after = clipped(mine, 5.0, 1.0);
    EXPECT_TRUE(first ? at::allclose(after, at::tensor({0.6f, 0.8f}), 1e-6) : after.numel() == 0);
  });
}

TEST(Clipping, KeepsZeroInfAndNan) {
  for (const double p : {1.0, 2.0, 3.0, kInf}) {
    EXPECT_EQ(norm_alone(at::zeros({3}), p), 0.0) << p;
    EXPECT_EQ(norm_alone(at::tensor({1.0f, -INFINITY}), p), kInf) << p;
    EXPECT_TRUE(std::isnan(norm_alone(at::tensor({1.0f, NAN, INFINITY}), p))) << p;
    on({{"dp_shard", 3}}, [p](const DeviceMesh& mesh) {  // NaN on one rank only
      const float bad = mesh.rank("dp_shard") == 1 ? NAN : 2.0f;
      EXPECT_TRUE(std::isnan(norm_of({shard_of(at::full({2}, bad), {"dp_shard"})}, mesh, p))) << p;
    });
  }
}

TEST(Clipping, IsZeroWithoutGradients) {
  on({{"dp_shard", 2}}, [](const DeviceMesh& mesh) {
    for (const double p : {1.0, 2.0, kInf}) {
      Shard shard = shard_of(at::ones({3}), {"dp_shard"});
      shard.tensor.mutable_grad().reset();
      EXPECT_EQ(norm_of({shard}, mesh, p), 0.0);
      EXPECT_EQ(norm_of({}, mesh, p), 0.0);
    }
  });
}

TEST(Clipping, CountsWhatRanksHoldTogetherOnceInEveryNorm) {
  const at::Tensor split = at::tensor({1.0f, -2.0f, 3.0f, 0.5f}), same = at::tensor({-4.0f, 0.25f});
  for (const double p : {1.0, 1.5, 2.0, kInf}) {
    // The two stages hold the same gradients.
    const double want =
        at::linalg_vector_norm(at::cat({split, same, split, same}).to(at::kDouble), p).item<double>();
    on({{"pp", 2}, {"dp_shard", 2}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
      const at::Tensor mine = split.narrow(0, 2 * mesh.rank("dp_shard") + mesh.rank("tp"), 1);
      const double norm = norm_of({shard_of(mine, {"dp_shard", "tp"}), shard_of(same)}, mesh, p);
      EXPECT_NEAR(norm, want, 1e-12 * want) << p;
    });
  }
}

}  // namespace
}  // namespace heddle
