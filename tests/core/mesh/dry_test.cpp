// The dry world: any size, a list of the calls that would be sent, and zeros as received data.
#include "heddle/mesh/dry.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/mesh/device_mesh.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;

at::Tensor meta(int64_t count, at::ScalarType type) {
  return at::empty({count}, at::TensorOptions(type).device(at::kMeta));
}

TEST(DryRendezvous, RecordsCollectivesInOrderOnOneRankOfFourThousand) {
  DryRendezvous rendezvous(2049, 4096);
  const Axis axes[] = {{"pp", 2}, {"dp_shard", 1024}, {"tp", 2}};
  const auto mesh = mesh::build(axes, rendezvous, "setup: 1");
  EXPECT_EQ(mesh.rank("pp"), 1);
  EXPECT_EQ(mesh.rank("tp"), 1);
  EXPECT_EQ(rendezvous.local_rank(), 1);
  mesh.group("dp_shard").all_gather(meta(1024 * 3, at::kBFloat16), meta(3, at::kBFloat16))->wait();
  mesh.group("tp").all_reduce(meta(10, at::kFloat))->wait();
  mesh.group("dp_shard").reduce_scatter(meta(3, at::kFloat), meta(1024 * 3, at::kFloat))->wait();
  mesh.group("pp").receive(meta(7, at::kFloat), 0, 1)->wait();
  EXPECT_THAT(rendezvous.entries(),
              ElementsAre(DryEntry{mesh::Operation::all_gather, 1024 * 3 * 2, "dp_shard", 1024},
                          DryEntry{mesh::Operation::all_reduce, 40, "tp", 2},
                          DryEntry{mesh::Operation::reduce_scatter, 1024 * 3 * 4, "dp_shard", 1024},
                          DryEntry{mesh::Operation::receive, 28, "pp", 2}));
}

TEST(DryRendezvous, GathersSeveralTensorsInOneCallIfConfigured) {
  DryRendezvous rendezvous(1, 4);
  const Axis axes[] = {{"dp", 4}};
  EXPECT_FALSE(mesh::gathers_each(mesh::build(axes, rendezvous, "").group("dp")));
  rendezvous.gather_as_a_gpu();
  const auto mesh = mesh::build(axes, rendezvous, "");
  Communicator& ranks = mesh.group("dp");
  ASSERT_TRUE(mesh::gathers_each(ranks));
  const mesh::GatherInto gathers[] = {{meta(8, at::kFloat), meta(2, at::kFloat)},
                                      {meta(12, at::kFloat), meta(3, at::kFloat)}};
  mesh::gather_each(ranks, gathers)->wait();
  EXPECT_THAT(rendezvous.entries(), ElementsAre(DryEntry{mesh::Operation::all_gather, 80, "dp", 4}));
  const mesh::GatherInto wrong[] = {{meta(9, at::kFloat), meta(2, at::kFloat)}};
  EXPECT_THROW(mesh::gather_each(ranks, wrong), Error);
}

TEST(DryRendezvous, ChecksSizesLikeARealGroup) {
  DryRendezvous rendezvous(0, 4);
  const Axis axes[] = {{"dp", 4}};
  const auto mesh = mesh::build(axes, rendezvous, "");
  EXPECT_THROW(mesh.group("dp").all_gather(meta(9, at::kFloat), meta(2, at::kFloat)), Error);
}

at::Tensor sevens(int64_t count) {
  return at::full({count}, 7, at::kFloat);
}

std::vector<float> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

TEST(DryRendezvous, ReceivesZerosInHostMemory) {
  DryRendezvous rendezvous(1, 3);
  const Axis axes[] = {{"dp", 3}};
  const auto mesh = mesh::build(axes, rendezvous, "");
  Communicator& ranks = mesh.group("dp");
  at::Tensor all = sevens(6), part = sevens(2), rows = sevens(3);
  ranks.receive(part, 0, 1)->wait();
  EXPECT_THAT(values(part), ElementsAre(0, 0));
  ranks.all_gather(all, at::ones({2}))->wait();
  EXPECT_THAT(values(all), ElementsAre(0, 0, 1, 1, 0, 0));
  ranks.all_gather(all, all.narrow(0, 2, 2))->wait();
  EXPECT_THAT(values(all), ElementsAre(0, 0, 1, 1, 0, 0));
  ranks.reduce_scatter(part = sevens(2), all)->wait();
  EXPECT_THAT(values(part), ElementsAre(0, 0));
  const int64_t one_each[] = {1, 1, 1};
  ranks.all_to_all(rows, at::ones({3}), one_each, one_each)->wait();
  EXPECT_THAT(values(rows), ElementsAre(0, 0, 0));
  ranks.all_reduce(all)->wait();
  EXPECT_THAT(values(all), ElementsAre(0, 0, 1, 1, 0, 0));
}

TEST(DryRendezvous, OmitsCallsOfAScope) {
  DryRank world(0, 4);
  const Axis axes[] = {{"dp", 4}};
  const auto mesh = mesh::build(axes, world, "");
  EXPECT_EQ(dry_rank(mesh), &world);
  EXPECT_EQ(mesh.device(), c10::Device(at::kMeta));
  mesh.group("dp").all_reduce(meta(10, at::kFloat))->wait();
  {
    const DryRendezvous::Unlisted unlisted(world);
    mesh.group("dp").all_reduce(meta(20, at::kFloat))->wait();
  }
  mesh.group("dp").all_reduce(meta(30, at::kFloat))->wait();
  EXPECT_THAT(world.entries(), ElementsAre(DryEntry{mesh::Operation::all_reduce, 40, "dp", 4},
                                           DryEntry{mesh::Operation::all_reduce, 120, "dp", 4}));
}

}  // namespace
}  // namespace heddle
