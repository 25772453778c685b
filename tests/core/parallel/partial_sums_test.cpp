// Partial gradients are added once, whichever ranks have one.
#include "core/parallel/built/built_stage.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "heddle/transport/threads.h"

namespace heddle {
namespace {

Shard shard(std::vector<int64_t> sizes, std::vector<std::string> partial, bool trains = true) {
  Shard out;
  out.tensor = at::zeros(sizes).set_requires_grad(trains);
  out.shape = sizes;
  out.offset.assign(sizes.size(), 0);
  out.partial = std::move(partial);
  return out;
}

TEST(PartialSums, AddOnlyPartialGradientsOfTheAxis) {
  ThreadWorld::run(4, [](Rendezvous& rendezvous) {
    const std::vector<Axis> axes = {{"dp", 2}, {"tp", 2}};
    const DeviceMesh mesh = mesh::build(axes, rendezvous, "test: partial sums");
    const double rank = rendezvous.rank();
    std::vector<Shard> shards;
    shards.push_back(shard({3}, {"tp"}));
    shards.push_back(shard({2, 2}, {}));
    shards.push_back(shard({5}, {"tp", "dp"}));
    shards.push_back(shard({1}, {"tp"}));         // only rank 0 of tp has a gradient
    shards.push_back(shard({4}, {"tp"}));         // no rank has one
    shards.push_back(shard({4}, {"tp"}, false));  // frozen
    for (const size_t at : {0, 1, 2})
      shards[at].tensor.mutable_grad() = at::full(shards[at].tensor.sizes(), rank + 1);
    if (mesh.rank("tp") == 0) shards[3].tensor.mutable_grad() = at::full({1}, 7.0);
    std::vector<Shard*> all;
    for (Shard& one : shards) all.push_back(&one);
    parallel::PartialSums sums(all, mesh);
    sums.add();
    EXPECT_TRUE(at::equal(shards[0].tensor.grad(), at::full({3}, rendezvous.rank() < 2 ? 3.0 : 7.0)));
    EXPECT_TRUE(at::equal(shards[1].tensor.grad(), at::full({2, 2}, rank + 1)));
    EXPECT_TRUE(at::equal(shards[2].tensor.grad(), at::full({5}, 10.0)));
    EXPECT_TRUE(at::equal(shards[3].tensor.grad(), at::full({1}, 7.0)));
    EXPECT_FALSE(shards[4].tensor.grad().defined());
    EXPECT_FALSE(shards[5].tensor.grad().defined());
  });
}

}  // namespace
}  // namespace heddle
