// Axes, joined axes, refolding and fingerprints.
#include "heddle/mesh/device_mesh.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/mesh/layout.h"
#include "core/mesh/views.h"
#include "heddle/base/error.h"
#include "heddle/transport/threads.h"

namespace heddle {
namespace {

using mesh::Views;
using ::testing::ElementsAre;

std::vector<Axis> five(int pp, int replicate, int shard, int cp, int tp) {
  return {{"pp", pp}, {"dp_replicate", replicate}, {"dp_shard", shard}, {"cp", cp}, {"tp", tp}};
}

mesh::Layout layout(const std::vector<Axis>& axes) {
  int world = 1;
  for (const Axis& axis : axes) world *= axis.size;
  return mesh::lay_out(axes, world);
}

Views views(const std::vector<Axis>& axes, const std::vector<View>& more = {}) {
  return Views(axes, layout(axes).world(), more, AxisTable());
}

std::vector<int> ranks(const Views& mesh, std::string_view axis, int rank) {
  const Views::Found found = mesh.find(axis);
  return found.layout->ranks(found.axes, rank);
}

int size(const Views& mesh, std::string_view axis) {
  const Views::Found found = mesh.find(axis);
  return found.layout->size(found.axes);
}

std::vector<int> indices(const mesh::Layout& layout, std::vector<std::string> names) {
  std::vector<int> out;
  for (const std::string& name : names) out.push_back(layout.index_of(name));
  return out;
}

template <class Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mesh);
    return error.message() + (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "nothing was thrown";
}

TEST(Mesh, PlacesTensorRanksNextToEachOther) {
  const Views mesh = views(five(1, 1, 4, 1, 2));
  EXPECT_THAT(ranks(mesh, "tp", 0), ElementsAre(0, 1));
  EXPECT_THAT(ranks(mesh, "tp", 5), ElementsAre(4, 5));
  EXPECT_THAT(ranks(mesh, "dp_shard", 2), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(ranks(mesh, "dp_shard", 7), ElementsAre(1, 3, 5, 7));
}

TEST(Mesh, PlacesReplicasOutsideOfShards) {
  const Views mesh = views(five(1, 2, 4, 1, 1));
  EXPECT_THAT(ranks(mesh, "dp_replicate", 0), ElementsAre(0, 4));
  EXPECT_THAT(ranks(mesh, "dp_shard", 5), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks(mesh, "dp", 5), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Mesh, GivesPipelineStagesContiguousRanks) {
  const Views mesh = views(five(2, 1, 2, 2, 1));
  EXPECT_THAT(ranks(mesh, "pp", 1), ElementsAre(1, 5));
  EXPECT_THAT(ranks(mesh, "dp_shard_cp", 2), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ranks(mesh, "dp_cp", 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks(mesh, "dp", 3), ElementsAre(1, 3));
  const Views::Found found = mesh.find("dp_shard_cp");
  EXPECT_EQ(found.layout->place(found.axes, 6), 2);
}

TEST(Mesh, GivesAnAbsentAxisSizeOne) {
  const Views mesh = views({{"dp", 4}});
  for (const char* axis : {"tp", "pp", "cp", "ep", "ep_shard", "dp_shard", "dp_replicate", "dp_shard_cp"}) {
    EXPECT_FALSE(mesh.has(axis)) << axis;
    EXPECT_EQ(size(mesh, axis), 1) << axis;
    EXPECT_THAT(ranks(mesh, axis, 2), ElementsAre(2)) << axis;
  }
  EXPECT_EQ(size(mesh, "dp_cp"), 4);
  EXPECT_EQ(size(mesh, "world"), 4);
}

TEST(Mesh, DerivesAxesOfAMeshWithItsOwnDp) {
  const Views mesh = views({{"dp", 2}, {"cp", 2}, {"tp", 2}});
  EXPECT_THAT(ranks(mesh, "dp", 0), ElementsAre(0, 4));
  EXPECT_THAT(ranks(mesh, "dp_cp", 1), ElementsAre(1, 3, 5, 7));
}

TEST(Mesh, SuggestsTheNearestNameForAnUnknownAxis) {
  EXPECT_EQ(
      message_of([] { views(five(1, 1, 2, 1, 1)).find("dp_shrad"); }),
      "unknown axis 'dp_shrad'; the mesh is (pp=1, dp_replicate=1, dp_shard=2, cp=1, tp=1) and knows pp, "
      "dp_replicate, dp_shard, cp, tp, ep, ep_shard, dp, dp_shard_cp, dp_cp, world | did you mean "
      "'dp_shard'?");
}

View experts(int shard, int ep) {
  return {"expert", {"dp", "cp", "tp"}, {{"ep_shard", shard}, {"ep", ep}}};
}

TEST(Mesh, FormsExpertGroupsOfNeighborsInAStage) {
  const Views two = views(five(1, 1, 8, 1, 1), {experts(2, 4)});
  EXPECT_THAT(ranks(two, "ep", 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ranks(two, "ep", 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks(two, "ep_shard", 1), ElementsAre(1, 5));
  EXPECT_EQ(size(views(five(1, 1, 8, 1, 1), {experts(1, 8)}), "ep"), 8);
  const Views staged = views(five(2, 1, 2, 1, 2), {experts(1, 4)});
  EXPECT_THAT(ranks(staged, "ep", 5), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(ranks(staged, "pp", 5), ElementsAre(1, 5));
}

TEST(Mesh, RefoldsOnlyNeighborsOfEqualSize) {
  const Axis to[] = {{"ep_shard", 2}, {"ep", 4}};
  const mesh::Layout mesh = layout(five(1, 1, 4, 1, 2));
  EXPECT_EQ(message_of([&] {
              mesh.refold(indices(mesh, {"dp_shard", "tp"}), to);
            }),
            "axes that are refolded must be neighbours, in the order of (pp=1, dp_replicate=1, dp_shard=4, "
            "cp=1, tp=2)");
  EXPECT_EQ(message_of([&] { mesh.refold(indices(mesh, {"dp_shard"}), to); }),
            "4 ranks cannot be refolded as (ep_shard=2, ep=4); the mesh is (pp=1, dp_replicate=1, "
            "dp_shard=4, cp=1, "
            "tp=2)");
}

TEST(Mesh, RequiresSizesThatFillTheWorld) {
  EXPECT_EQ(message_of([] { mesh::lay_out(five(1, 1, 3, 1, 1), 4); }),
            "the mesh (pp=1, dp_replicate=1, dp_shard=3, cp=1, tp=1) holds 3 ranks; the world has 4 | start "
            "as many "
            "ranks as the product of the sizes, or change the sizes");
  EXPECT_EQ(message_of([] {
              mesh::lay_out(std::vector<Axis>{{"dp", 0}}, 4);
            }),
            "axis dp has size 0; sizes are 1 or more");
  EXPECT_EQ(message_of([] {
              mesh::lay_out(std::vector<Axis>{{"dp", 2}, {"dp", 2}}, 4);
            }),
            "axis dp is repeated");
}

TEST(Mesh, SharesACommunicatorBetweenAxesWithTheSameRanks) {
  ThreadWorld::run(4, [](Rendezvous& rendezvous) {
    const auto mesh = mesh::build(five(1, 1, 4, 1, 1), rendezvous, "setup: 1");
    EXPECT_EQ(&mesh.group("dp_shard"), &mesh.group("world"));
    EXPECT_EQ(&mesh.group("dp"), &mesh.group("dp_shard_cp"));
    const View view[] = {experts(1, 4)};
    const auto both = mesh::build(five(1, 1, 4, 1, 1), rendezvous, "setup: 1", view);
    EXPECT_EQ(&both.group("ep"), &both.group("dp"));
    EXPECT_NE(&mesh.group("tp"), &mesh.group("dp"));
  });
}

TEST(Mesh, SumsOnlyOverTheAxisOfAGroup) {
  ThreadWorld::run(4, [](Rendezvous& rendezvous) {
    const auto mesh = mesh::build(five(1, 1, 2, 1, 2), rendezvous, "setup: 1");
    auto value = at::full({1}, 1 << rendezvous.rank());
    mesh.group("dp_shard").all_reduce(value)->wait();
    EXPECT_EQ(value.item<int64_t>(), rendezvous.rank() % 2 == 0 ? 1 + 4 : 2 + 8);
    EXPECT_EQ(mesh.rank("dp_shard"), rendezvous.rank() / 2);
    EXPECT_EQ(mesh.size("tp"), 2);
  });
}

TEST(Fingerprint, NamesThePartAndTheRanksThatDiffer) {
  EXPECT_EQ(
      message_of([] {
        ThreadWorld::run(5, [](Rendezvous& rendezvous) {
          const bool odd = rendezvous.rank() == 3;
          mesh::build(five(1, 1, 5, 1, 1), rendezvous,
                      std::string("abi: sdk1\nplugin acme: ") + (odd ? "0.2.0" : "0.1.0") + "\nsetup: 77");
        });
      }),
      "the ranks were not started alike: plugin acme is 0.1.0 on ranks 0-2, 4, 0.2.0 on rank 3 | start every "
      "rank with the same configuration, plugins and build of heddle");
}

TEST(Fingerprint, ShowsAFewDifferencesAndCountsTheRest) {
  std::string a, b;
  for (const char* part : {"a", "b", "c", "d", "e", "f"}) {
    a += std::string(part) + ": 1\n";
    b += std::string(part) + ": 2\n";
  }
  const std::string texts[] = {a, b};
  EXPECT_THAT(message_of([&] { mesh::compare_fingerprints(texts); }),
              ::testing::HasSubstr("d is 1 on rank 0, 2 on rank 1; and 2 more"));
}

TEST(Fingerprint, NamesTheHostsOfTheRanks) {
  const std::string texts[] = {"seed: 1", "seed: 1", "seed: 2"};
  const auto host_name = [](int rank) { return std::string(rank < 2 ? "left" : "right"); };
  EXPECT_EQ(message_of([&] { mesh::compare_fingerprints(texts, host_name); }),
            "the ranks were not started alike: seed is 1 on ranks 0, 1 on left, 2 on rank 2 on right | start "
            "every rank with the same configuration, plugins and build of heddle");
}

TEST(Fingerprint, AsksForTheSameFilesIfOnlyFilesDiffer) {
  const std::string texts[] = {"seed: 1\nfile weights: aa\nfile checkpoint: step_1",
                               "seed: 1\nfile weights: bb"};
  EXPECT_EQ(
      message_of([&] { mesh::compare_fingerprints(texts); }),
      "the ranks read different files: checkpoint (step_1 on rank 0; not found on rank 1); weights (aa on "
      "rank 0; bb on rank 1) | Copy the same files to each host, or keep them on a disk that all hosts "
      "share.");
  const std::string more[] = {"seed: 1\nfile weights: aa", "seed: 2\nfile weights: bb"};
  EXPECT_EQ(
      message_of([&] { mesh::compare_fingerprints(more); }),
      "the ranks were not started alike: seed is 1 on rank 0, 2 on rank 1; weights (aa on rank 0; bb on "
      "rank 1) | start every rank with the same configuration, plugins and build of heddle");
}

TEST(Fingerprint, DiffersWhenOneRankLacksAPart) {
  const std::string texts[] = {"setup: 1", "setup: 1\nplugin acme: 1"};
  EXPECT_THAT(message_of([&] { mesh::compare_fingerprints(texts); }),
              ::testing::HasSubstr("plugin acme is (nothing) on rank 0, 1 on rank 1"));
}

}  // namespace
}  // namespace heddle
