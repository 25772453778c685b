// Ranks over which gradients are summed: of dense parameters, of experts, of axes of plugins.
#include "heddle/parallel/reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/mesh/dry.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::thrown_by;

const View kExperts{"expert", {"dp", "cp", "tp"}, {{"ep_shard", 3}, {"ep", 4}}};

std::string text_of(const Reduction& one) {
  return "all " + one.all + ", copies " + one.copies + ", shards " + one.shards;
}

Placed along(const std::string& axis, Placed::Kind kind = Placed::Kind::split) {
  Placed out;
  out.parameter = "w";
  out.axis = axis;
  out.kind = kind;
  return out;
}

// Returns the reduction of w.
std::string of(const std::vector<Axis>& axes, const std::vector<Placed>& placed = {},
               const std::vector<View>& views = {}) {
  int world = 1;
  for (const Axis& axis : axes) world *= axis.size;
  DryRendezvous rendezvous(world - 1, world);
  const DeviceMesh mesh = mesh::build(axes, rendezvous, "", views);
  return text_of(Reductions(mesh, placed).of("w"));
}

std::vector<Axis> five_axes(int pp, int replicate, int shard, int cp, int tp) {
  return {{"pp", pp}, {"dp_replicate", replicate}, {"dp_shard", shard}, {"cp", cp}, {"tp", tp}};
}

TEST(Reductions, UseTheDataAxesForDenseParameters) {
  EXPECT_EQ(of({{"dp", 4}}), "all dp, copies , shards dp");
  EXPECT_EQ(of({{"pp", 2}, {"dp", 3}, {"tp", 2}}), "all dp, copies , shards dp");
  EXPECT_EQ(of({{"dp", 2}, {"cp", 2}, {"tp", 2}}), "all dp_cp, copies , shards dp_cp");
  EXPECT_EQ(of({{"pp", 1}, {"tp", 2}}), "all , copies , shards ");
  EXPECT_EQ(of(five_axes(1, 1, 4, 1, 1)), "all dp, copies dp_replicate, shards dp_shard");
  EXPECT_EQ(of(five_axes(2, 2, 2, 1, 2)), "all dp, copies dp_replicate, shards dp_shard");
  EXPECT_EQ(of(five_axes(1, 2, 2, 2, 1)), "all dp_cp, copies dp_replicate, shards dp_shard_cp");
  EXPECT_EQ(of(five_axes(1, 1, 1, 2, 1)), "all dp_shard_cp, copies dp_replicate, shards dp_shard_cp");
}

TEST(Reductions, IgnoreTensorParallelism) {
  EXPECT_EQ(of(five_axes(1, 2, 2, 1, 2), {along("tp")}), "all dp, copies dp_replicate, shards dp_shard");
  EXPECT_EQ(of(five_axes(1, 2, 2, 1, 2), {along("tp", Placed::Kind::partial_gradient)}),
            "all dp, copies dp_replicate, shards dp_shard");
}

TEST(Reductions, UseTheAxesWithoutEpForExperts) {
  EXPECT_EQ(of(five_axes(1, 2, 3, 1, 2), {along("ep")}, {kExperts}),
            "all ep_shard, copies , shards ep_shard");
  EXPECT_EQ(of(five_axes(2, 1, 6, 1, 2), {along("ep", Placed::Kind::partial_gradient)}, {kExperts}),
            "all ep_shard, copies , shards ep_shard");
  EXPECT_EQ(of(five_axes(1, 2, 3, 1, 2), {}, {kExperts}), "all dp, copies dp_replicate, shards dp_shard");
}

// A view without the context ranks, and a view without the data-parallel ranks.
TEST(Reductions, JoinTheDataAxesThatAViewKeeps) {
  AxisTable table;
  AxisInfo acme;
  acme.name = "acme", acme.key = "acme_size", acme.parallelism = "acme", acme.view = "acme";
  const std::vector<ViewInfo> views = {{"acme", {"dp"}, "acme_shard"}};
  table.add(std::vector{acme}, views, "the parallelizer 'acme'");
  DryRendezvous rendezvous(0, 8);
  const View view{"acme", {"dp"}, {{"acme_shard", 2}, {"acme", 2}}};
  const DeviceMesh mesh = mesh::build(five_axes(1, 1, 4, 2, 1), rendezvous, "", std::vector{view}, table);
  const Reductions reductions(mesh, std::vector{along("acme")});
  EXPECT_EQ(text_of(reductions.of("w")), "all acme_shard+cp, copies , shards acme_shard+cp");
  EXPECT_EQ(mesh.size("acme_shard+cp"), 4);
  EXPECT_EQ(reductions.distinct().size(), 2u);
  EXPECT_EQ(text_of(reductions.of("v")), "all dp_shard_cp, copies dp_replicate, shards dp_shard_cp");
}

TEST(Reductions, NameTheParameterWhenAxesHaveNoCommonView) {
  EXPECT_THAT(thrown_by([] {
                of(five_axes(1, 2, 3, 1, 2), {along("ep"), along("tp")}, {kExperts});
              }),
              HasSubstr("parameter 'w': the axes ep, tp are in no common view of this mesh"));
  EXPECT_THAT(thrown_by([] { of(five_axes(1, 1, 4, 1, 1), {along("ep")}); }),
              HasSubstr("parameter 'w': the axis 'ep' is in no view of this mesh"));
}

TEST(Reductions, CheckTheAxesOfAShard) {
  DryRendezvous rendezvous(0, 4);
  const DeviceMesh mesh = mesh::build(five_axes(1, 1, 4, 1, 1), rendezvous, "");
  Shard shard;
  shard.name = "w";
  check_axes(shard, std::vector<std::string>{"dp_shard"}, mesh);
  EXPECT_THAT(thrown_by([&] { check_axes(shard, std::vector<std::string>{"ep"}, mesh); }),
              HasSubstr("error[internal] parallel: shard of 'w': the axis 'ep' is in no view"));
}

}  // namespace
}  // namespace heddle
