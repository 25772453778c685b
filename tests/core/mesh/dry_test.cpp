// The dry world: meta tensors, any size, a list of what would have been sent.
#include "core/mesh/dry.h"

#include <ATen/ops/empty.h>
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

TEST(Dry, OneRankOfFourThousandWritesDownItsCollectivesInOrder) {
  DryRendezvous meeting(2049, 4096);
  const Axis axes[] = {{"pp", 2}, {"dp_shard", 1024}, {"tp", 2}};
  const auto mesh = mesh::build(axes, meeting, "setup: 1");
  EXPECT_EQ(mesh.rank("pp"), 1);
  EXPECT_EQ(mesh.rank("tp"), 1);
  EXPECT_EQ(meeting.local_rank(), 1);
  mesh.group("dp_shard").all_gather(meta(1024 * 3, at::kBFloat16), meta(3, at::kBFloat16))->wait();
  mesh.group("tp").all_reduce(meta(10, at::kFloat))->wait();
  mesh.group("dp_shard").reduce_scatter(meta(3, at::kFloat), meta(1024 * 3, at::kFloat))->wait();
  mesh.group("pp").receive(meta(7, at::kFloat), 0, 1)->wait();
  EXPECT_THAT(meeting.entries(),
              ElementsAre(DryEntry{mesh::Operation::all_gather, 1024 * 3 * 2, "dp_shard", 1024},
                          DryEntry{mesh::Operation::all_reduce, 40, "tp", 2},
                          DryEntry{mesh::Operation::reduce_scatter, 1024 * 3 * 4, "dp_shard", 1024},
                          DryEntry{mesh::Operation::receive, 28, "pp", 2}));
}

TEST(Dry, ChecksSizesAsARealGroupDoes) {
  DryRendezvous meeting(0, 4);
  const Axis axes[] = {{"dp", 4}};
  const auto mesh = mesh::build(axes, meeting, "");
  EXPECT_THROW(mesh.group("dp").all_gather(meta(9, at::kFloat), meta(2, at::kFloat)), Error);
}

}  // namespace
}  // namespace heddle
