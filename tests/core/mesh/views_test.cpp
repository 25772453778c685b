// Views of one mesh compared with a slow oracle, names in all views, and valid axes of a parameter.
#include "core/mesh/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "heddle/base/error.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/transport/threads.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using mesh::Views;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::thrown_by;

struct ViewShape {
  int pp, replicate, shard, cp, tp;
  int ranks() const { return pp * replicate * shard * cp * tp; }
  std::vector<Axis> axes() const {
    return {{"pp", pp}, {"dp_replicate", replicate}, {"dp_shard", shard}, {"cp", cp}, {"tp", tp}};
  }
};

// Returns the coordinates of every rank by name, by counting.
std::vector<std::map<std::string, int>> coordinates(const ViewShape& shape, int ep) {
  std::vector<std::map<std::string, int>> out;
  for (int pp = 0; pp < shape.pp; ++pp) {
    int within = 0;  // its position in the stage
    for (int replicate = 0; replicate < shape.replicate; ++replicate)
      for (int shard = 0; shard < shape.shard; ++shard)
        for (int cp = 0; cp < shape.cp; ++cp)
          for (int tp = 0; tp < shape.tp; ++tp, ++within)
            out.push_back({{"pp", pp},
                           {"dp_replicate", replicate},
                           {"dp_shard", shard},
                           {"cp", cp},
                           {"tp", tp},
                           {"ep_shard", within / ep},
                           {"ep", within % ep}});
  }
  return out;
}

// Returns the ranks that agree with `rank` in all coordinates of the view except the named ones.
std::vector<int> oracle(const std::vector<std::map<std::string, int>>& all,
                        const std::vector<std::string>& view, const std::vector<std::string>& free,
                        int rank) {
  std::vector<int> out;
  for (size_t other = 0; other < all.size(); ++other) {
    bool same = true;
    for (const std::string& axis : view)
      if (std::find(free.begin(), free.end(), axis) == free.end())
        same = same && all[other].at(axis) == all[rank].at(axis);
    if (same) out.push_back(static_cast<int>(other));
  }
  return out;
}

const std::vector<std::string> kOwn = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
const std::vector<std::string> kExpert = {"pp", "ep_shard", "ep"};

void compare(const Views& views, const std::vector<std::map<std::string, int>>& all, const std::string& name,
             const std::vector<std::string>& view, const std::vector<std::string>& parts) {
  const Views::Found found = views.find(name);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::vector<int> want = oracle(all, view, parts, static_cast<int>(rank));
    ASSERT_EQ(found.layout->ranks(found.axes, static_cast<int>(rank)), want) << name << " of rank " << rank;
    const int place = found.layout->place(found.axes, static_cast<int>(rank));
    ASSERT_EQ(want.at(static_cast<size_t>(place)), static_cast<int>(rank)) << name;
    ASSERT_EQ(found.layout->size(found.axes), static_cast<int>(want.size())) << name;
  }
}

TEST(Views, EqualTheOracleForManySizes) {
  int compared = 0;
  for (const ViewShape& shape :
       {ViewShape{1, 1, 8, 1, 1}, ViewShape{2, 1, 2, 2, 1}, ViewShape{1, 2, 3, 1, 2},
        ViewShape{3, 1, 5, 1, 1}, ViewShape{1, 3, 2, 3, 1}, ViewShape{2, 2, 3, 1, 2},
        ViewShape{1, 1, 1, 6, 2}, ViewShape{1, 1, 7, 1, 3}, ViewShape{1, 1, 1, 1, 1}}) {
    const int stage = shape.ranks() / shape.pp;
    for (int ep = 1; ep <= stage; ++ep) {
      if (stage % ep != 0) continue;
      const View expert{"expert", {"dp", "cp", "tp"}, {{"ep_shard", stage / ep}, {"ep", ep}}};
      const Views views(shape.axes(), shape.ranks(), std::vector{expert}, AxisTable());
      const auto all = coordinates(shape, ep);
      for (const std::string& axis : kOwn) compare(views, all, axis, kOwn, {axis});
      compare(views, all, "dp", kOwn, {"dp_replicate", "dp_shard"});
      compare(views, all, "dp_shard_cp", kOwn, {"dp_shard", "cp"});
      compare(views, all, "dp_cp", kOwn, {"dp_replicate", "dp_shard", "cp"});
      compare(views, all, "dp_replicate+tp", kOwn, {"dp_replicate", "tp"});
      compare(views, all, "world", kOwn, kOwn);
      compare(views, all, "ep", kExpert, {"ep"});
      compare(views, all, "ep_shard", kExpert, {"ep_shard"});
      compare(views, all, "ep_shard+ep", kExpert, {"ep_shard", "ep"});
      compare(views, all, "ep+pp", kExpert, {"pp", "ep"});
      ++compared;
    }
  }
  EXPECT_GT(compared, 30);
}

// A strategy with its own axis dp, whose experts do not use the tensor ranks.
TEST(Views, FoldTheAxesThatTheMeshHas) {
  const std::vector<Axis> axes = {{"dp", 6}, {"tp", 2}};
  const View acme{"acme", {"dp", "cp"}, {{"acme_shard", 2}, {"acme", 3}}};
  const Views views(axes, 12, std::vector{acme}, AxisTable());
  const Views::Found found = views.find("acme");
  EXPECT_THAT(found.layout->ranks(found.axes, 8), ElementsAre(6, 8, 10));
  EXPECT_EQ(views.written(), "dense (dp=6, tp=2), acme (acme_shard=2, acme=3, tp=2)");
  EXPECT_TRUE(views.has("acme+tp"));
  EXPECT_FALSE(views.has("acme+dp"));
}

Views mixed() {
  const std::vector<View> more = {{"expert", {"dp", "cp", "tp"}, {{"ep_shard", 2}, {"ep", 4}}},
                                  {"acme", {"dp"}, {{"acme_shard", 2}, {"acme", 2}}}};
  return Views(ViewShape{1, 2, 2, 1, 2}.axes(), 8, more, AxisTable());
}

std::string fault(const std::vector<std::string>& axes) {
  return mixed().axes_error(axes);
}

TEST(Views, ReportInvalidAxesOfAParameter) {
  for (const std::vector<std::string>& good :
       std::vector<std::vector<std::string>>{{},
                                             {"tp"},
                                             {"tp", "dp_shard_cp"},
                                             {"ep"},
                                             {"ep", "ep_shard"},
                                             {"acme", "tp"},
                                             {"acme_shard", "acme", "cp"}})
    EXPECT_EQ(fault(good), "");
  const std::string which =
      " of this mesh, which is dense (pp=1, dp_replicate=2, dp_shard=2, cp=1, tp=2), expert (pp=1, "
      "ep_shard=2, ep=4), acme (pp=1, acme_shard=2, acme=2, cp=1, tp=2)";
  EXPECT_EQ(fault({"tp", "ex"}), "the axis 'ex' is in no view" + which);
  EXPECT_EQ(fault({"tp", "ep"}), "the axes tp, ep are in no common view" + which);
  EXPECT_EQ(fault({"ep", "dp_shard"}), "the axes ep, dp_shard are in no common view" + which);
  EXPECT_EQ(fault({"acme", "dp_shard_cp"}), "the axes acme, dp_shard_cp are in no common view" + which);
  EXPECT_EQ(fault({"dp_shard_cp", "cp"}), "the axis 'cp' is named twice in dp_shard_cp, cp");
  EXPECT_EQ(fault({"ep", "ep"}), "the axis 'ep' is named twice in ep, ep");
}

TEST(Views, KnowAnAxisWithoutAView) {
  const Views dense(ViewShape{1, 1, 4, 1, 1}.axes(), 4, {}, AxisTable());
  EXPECT_FALSE(dense.has("ep"));
  EXPECT_TRUE(dense.find("ep").axes.empty());  // its size may be read: this rank alone
  EXPECT_EQ(dense.axes_error(std::vector<std::string>{"ep"}),
            "the axis 'ep' is in no view of this mesh, which is (pp=1, dp_replicate=1, dp_shard=4, cp=1, "
            "tp=1)");
}

TEST(Views, RefuseSizesThatDoNotFit) {
  const auto made = [](std::vector<View> more) {
    return thrown_by([&] { Views(ViewShape{1, 1, 4, 1, 2}.axes(), 8, more, AxisTable()); });
  };
  EXPECT_THAT(made({{"a", {"dp", "tp"}, {{"x", 8}}}}), HasSubstr("must be neighbours"));
  EXPECT_THAT(made({{"a", {"dp"}, {{"x", 3}}}}), HasSubstr("4 ranks cannot be refolded as (x=3)"));
  EXPECT_THAT(made({{"a", {"dp"}, {{"tp", 4}}}}), HasSubstr("axis tp is in two views of the mesh"));
  EXPECT_THAT(made({{"a", {"dp"}, {{"x", 4}}}, {"b", {"tp"}, {{"x", 2}}}}),
              HasSubstr("axis x is in two views"));
  EXPECT_THAT(thrown_by([] { mixed().find("tp+ep"); }), HasSubstr("the axes tp, ep are in no common view"));
  EXPECT_THAT(thrown_by([] { mixed().find("tp+epp"); }), HasSubstr("unknown axis 'epp'"));
  EXPECT_THAT(thrown_by([] { mixed().layout("experts"); }), HasSubstr("unknown view 'experts'"));
}

TEST(Views, ReturnGroupsOfAMesh) {
  ThreadWorld::run(6, [](Rendezvous& rendezvous) {
    const std::vector<View> more = {{"expert", {"dp", "cp", "tp"}, {{"ep_shard", 3}, {"ep", 2}}}};
    const auto mesh = mesh::build(ViewShape{1, 1, 3, 1, 2}.axes(), rendezvous, "setup: 1", more);
    EXPECT_EQ(mesh.size("ep"), 2);
    EXPECT_EQ(mesh.rank("ep_shard"), rendezvous.rank() / 2);
    EXPECT_THAT(mesh.views(), ElementsAre("dense", "expert"));
    EXPECT_EQ(&mesh.group("ep"), &mesh.group("tp"));  // the same ranks here
    EXPECT_EQ(&mesh.group("ep_shard"), &mesh.group("dp_shard"));
    EXPECT_EQ(mesh.size(""), 1);
    EXPECT_EQ(mesh.view_of(std::vector<std::string>{"ep"}), "expert");
    EXPECT_THAT(mesh.parts_of(std::vector<std::string>{"tp", "dp"}),
                ElementsAre("dp_replicate", "dp_shard", "tp"));
  });
}

TEST(Views, AreComparedBetweenRanks) {
  const auto told = thrown_by([] {
    ThreadWorld::run(4, [](Rendezvous& rendezvous) {
      const int ep = rendezvous.rank() == 2 ? 4 : 2;
      const std::vector<View> more = {{"expert", {"dp", "cp", "tp"}, {{"ep_shard", 4 / ep}, {"ep", ep}}}};
      mesh::build(ViewShape{1, 1, 4, 1, 1}.axes(), rendezvous, "setup: 1", more);
    });
  });
  EXPECT_THAT(told,
              HasSubstr("view expert is (ep_shard=2, ep=2) on ranks 0, 1, 3, (ep_shard=1, ep=4) on rank 2"));
}

}  // namespace
}  // namespace heddle
