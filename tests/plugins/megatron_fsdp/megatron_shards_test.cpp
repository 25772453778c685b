// Shards that Megatron's ranks own, and their gradients.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <mutex>

#include "checkpoint/folder.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/parallel/stages.h"
#include "plugins/megatron_runs.h"

namespace heddle::tests {
namespace {

TEST(Megatron, OwnsEveryElementOncePerInstance) {
  for (const int instances : {1, 2}) {
    std::mutex lock;
    std::map<std::string, int64_t> held;
    int cut = 0;
    on_ranks(megatron(2, kFlat, instances), [&](Stages& stages, const DeviceMesh&) {
      const std::lock_guard guard(lock);
      for (const Shard* shard : stages.shards()) {
        held[shard->name] += shard->tensor.numel();
        EXPECT_EQ(shard->axes, std::vector<std::string>{"dp_shard"});
        cut += shard->shape.size() == 2 && shard->tensor.size(1) < shard->shape[1];
      }
    });
    EXPECT_GT(cut, 0);
    EXPECT_EQ(held.at("model.embed_tokens.weight"), 53 * 14 * instances);
    EXPECT_EQ(held.at("model.norm.weight"), 14 * instances);
  }
}

TEST(MegatronFsdp, NeverSplitsARow) {
  on_ranks(mfsdp(3, zero(3)), [&](Stages& stages, const DeviceMesh&) {
    for (const Shard* shard : stages.shards()) {
      if (shard->shape.size() != 2) continue;
      EXPECT_EQ(shard->tensor.size(1), shard->shape[1]) << shard->name;
    }
  });
}

TEST(Megatron, KeepsDtypesInSeparateBuffers) {
  Training run = toy_like(megatron(2, "{}"));
  run.make_units = [](int) {
    Units units = toy_units({});
    for (size_t i = 1; i < 4; ++i) {
      at::Tensor& scale = toy_at(units, i).own[2].tensor;
      scale = scale.detach().to(at::kDouble).set_requires_grad(true);
    }
    return units;
  };
  on_ranks(run, [](Stages& stages, const DeviceMesh&) {
    std::map<const void*, std::pair<at::ScalarType, int64_t>> buffers;  // with the smallest offset
    for (const Shard* shard : stages.shards()) {
      auto& [dtype, least] = buffers
                                 .try_emplace(shard->tensor.storage().unsafeGetStorageImpl(),
                                              shard->tensor.scalar_type(), 1 << 30)
                                 .first->second;
      EXPECT_EQ(dtype, shard->tensor.scalar_type());
      least = std::min(least, shard->tensor.storage_offset());
    }
    ASSERT_EQ(buffers.size(), 2u);
    for (const auto& [storage, buffer] : buffers) EXPECT_EQ(buffer.second, 0);
  });
}

TEST(Megatron, GathersSplitShardsToWholeParameters) {
  std::map<std::string, at::Tensor> want;
  on_ranks(megatron(1, "{}"), [&](Stages& stages, const DeviceMesh&) {
    for (const Shard* shard : stages.shards()) want[shard->name] = shard->tensor.detach().clone();
  });
  const Folder folder;
  int run_number = 0;
  for (const Training& run :
       {megatron(3, kFlat), megatron(2, kFlat, 2), megatron(3, fsdp("optim_grads_params")), mfsdp(2, zero(3)),
        mfsdp(3, zero(1)), megatron(2, fsdp("optim_grads_params", "outer_dp_sharding_strategy: optim"), 2)}) {
    ++run_number;
    on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
      std::vector<checkpoint::Part> parts;
      for (const Shard* shard : stages.shards())
        parts.push_back({shard->name, shard->tensor.detach(), shard->shape, shard->offset});
      const std::filesystem::path place = folder / std::to_string(run_number);
      std::filesystem::create_directories(place);
      checkpoint::write_sharded(place, "model", parts, mesh.rendezvous(), "test");
      checkpoint::ShardedReader reader(place);
      for (const auto& [name, tensor] : want) {
        const at::Tensor read = at::empty_like(tensor);
        reader.read({name, read, tensor.sizes().vec(), std::vector<int64_t>(tensor.dim(), 0)});
        EXPECT_TRUE(at::equal(read, tensor)) << name;
      }
      const Unsharded unsharded(stages);
      EXPECT_EQ(unsharded.parameters().size(), want.size());
      for (const WholeParameter& parameter : unsharded.parameters())
        EXPECT_TRUE(at::equal(parameter.tensor, want.at(parameter.name))) << parameter.name;
    });
  }
}

TEST(MegatronFsdp, SetsGradientsOfShardsOnlyAtTheEndOfTheStep) {
  for (int strategy = 0; strategy <= 3; ++strategy)
    on_ranks(toy_like(mfsdp(2, zero(strategy))), [](Stages& stages, const DeviceMesh&) {
      Batch batch;
      batch.tokens = batch.labels = at::full({2, 3}, 4, at::kLong);
      for (int microbatch = 0; microbatch < 2; ++microbatch) {
        if (microbatch == 1) stages[0]->expect_last_backward();
        stages[0]->forward({}, batch)[0].backward();
        for (const Shard* shard : stages.shards()) EXPECT_FALSE(shard->tensor.grad().defined());
      }
      stages[0]->finish_gradients();
      for (const Shard* shard : stages.shards()) EXPECT_TRUE(shard->tensor.grad().defined()) << shard->name;
    });
}

// Megatron's own implementation loses all but the last microbatch here, or scales sums repeatedly.
TEST(Megatron, AccumulatesScaledGradientsInAGroupOfOneRank) {
  const auto want = gradients(toy_like(megatron(1, "calculate_per_token_loss: true")));
  for (const std::string& strategy : kShardings)
    for (const int replicas : {1, 2})
      for (const char* more : {"",
                               "megatron_fsdp_main_grads_dtype: float64\nmegatron_fsdp_grad_comm_dtype: "
                               "float32\nmegatron_fsdp_use_decoupled_grad: true"}) {
        const auto gradients_of = [&](int microbatches) {
          Training run = toy_like(megatron(1, fsdp(strategy, more), replicas));
          run.microbatches = microbatches;
          auto out = gradients(run);
          for (auto& [name, tensor] : out) tensor = tensor.to(at::kFloat);
          return out;
        };
        SCOPED_TRACE(strategy + std::to_string(replicas) + more);
        expect_same(gradients_of(1), want);
        expect_same(gradients_of(3), want);
      }
}

TEST(Megatron, GivesEveryReplicaTheWholeSum) {
  std::mutex lock;
  std::map<std::string, at::Tensor> first;
  on_ranks(toy_like(megatron(2, "overlap_grad_reduce: true\nbucket_size: 60", 2)),
           [&](Stages& stages, const DeviceMesh& mesh) {
             Batch batch;
             batch.tokens = batch.labels = at::full({2, 3}, mesh.rank("world"), at::kLong);
             stages[0]->expect_last_backward();
             stages[0]->forward({}, batch)[0].backward();
             stages[0]->finish_gradients();
             const std::lock_guard guard(lock);
             for (const Shard* shard : stages.shards()) {
               const auto [known, is_new] = first.emplace(shard->name, shard->tensor.grad().clone());
               EXPECT_TRUE(is_new || at::equal(known->second, shard->tensor.grad())) << shard->name;
             }
           });
}

}  // namespace
}  // namespace heddle::tests
