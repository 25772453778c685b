// The table of axes, and additions by parallelizers.
#include "heddle/config/axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::thrown_by;

AxisInfo axis(const std::string& name, const std::string& view) {
  AxisInfo out;
  out.name = name;
  out.key = name + "_size";
  out.parallelism = name + " parallelism";
  out.view = view;
  return out;
}

const ViewInfo kAcme{"acme", {"dp", "cp"}, "acme_shard"};

std::string adding(std::vector<AxisInfo> axes, std::vector<ViewInfo> views = {kAcme}) {
  AxisTable table;
  return thrown_by([&] { table.add(axes, views, "the parallelizer 'x'"); });
}

TEST(AxisTable, ContainsTheEnginesAxesInPrintOrder) {
  EXPECT_THAT(AxisTable::standard().names(), ElementsAre("pp", "dp", "dp_replicate", "dp_shard", "cp", "tp",
                                                         "ep", "ep_shard", "dp_shard_cp", "dp_cp", "world"));
  std::vector<std::string> keys;
  for (const AxisInfo* one : AxisTable::standard().in_order_of_reading()) keys.push_back(one->key);
  EXPECT_THAT(keys, ElementsAre("tp_size", "pp_size", "cp_size", "ep_size", "dp_size", "dp_replicate_size"));
  EXPECT_EQ(AxisTable::standard().with_key(""), nullptr);
  EXPECT_EQ(AxisTable::standard().find("acme"), nullptr);
}

TEST(AxisTable, AcceptsAnAxisInItsOwnView) {
  AxisTable table;
  for (int again = 0; again < 2; ++again)  // two plugins may use the same axis
    table.add(std::vector{axis("acme", "acme")}, std::vector{kAcme}, "the parallelizer 'x'");
  EXPECT_EQ(table.names().size(), AxisTable::standard().names().size() + 2);
  ASSERT_NE(table.find("acme_shard"), nullptr);
  EXPECT_EQ(table.find("acme_shard")->kind, AxisKind::data);
  EXPECT_EQ(table.with_key("acme_size")->name, "acme");
}

TEST(AxisTable, AcceptsASecondAxisOfTheExpertView) {
  AxisTable table;
  table.add(std::vector{axis("etp", "expert")}, {}, "the parallelizer 'x'");
  Sizes sizes;
  sizes.ep = 2, sizes.ep_shard = 3, sizes.plugin_axes = {{"etp", 2}};
  EXPECT_EQ(views_of(sizes, table),
            (std::vector<View>{{"expert", {"dp", "cp", "tp"}, {{"ep_shard", 3}, {"ep", 2}, {"etp", 2}}}}));
}

TEST(AxisTable, MakesTheViewsWhoseAxesAreUsed) {
  Sizes sizes;
  EXPECT_TRUE(views_of(sizes, AxisTable()).empty());
  sizes.ep = 4, sizes.ep_shard = 1;
  EXPECT_EQ(views_of(sizes, AxisTable()),
            (std::vector<View>{{"expert", {"dp", "cp", "tp"}, {{"ep_shard", 1}, {"ep", 4}}}}));
}

TEST(AxisTable, RefusesNamesInUse) {
  const std::string differs =
      ", which exists already and differs\n  hint: give the axis, its key and its view "
      "names of their own";
  EXPECT_EQ(adding({axis("tp", "acme")}),
            "error[plugin_conflict] plugin: the parallelizer 'x' declares the axis 'tp'" + differs);
  AxisInfo key = axis("acme", "acme");
  key.key = "tp_size";
  EXPECT_EQ(adding({key}),
            "error[plugin_conflict] plugin: the parallelizer 'x' declares the key 'tp_size'" + differs);
  EXPECT_EQ(adding({}, {{"expert", {"dp"}, "rest"}}),
            "error[plugin_conflict] plugin: the parallelizer 'x' declares the view 'expert'" + differs);
  EXPECT_EQ(adding({}, {{"acme", {"dp"}, "ep_shard"}}),
            "error[plugin_conflict] plugin: the parallelizer 'x' declares the axis 'ep_shard'" + differs);
}

TEST(AxisTable, RefusesInvalidAxesOfPlugins) {
  const auto refused = [](const std::string& text) {
    return HasSubstr("the parallelizer 'x' declares " + text);
  };
  EXPECT_THAT(adding({axis("a+b", "acme")}), refused("the axis 'a+b'"));
  EXPECT_THAT(adding({axis("", "acme")}), refused("the axis ''"));
  EXPECT_THAT(adding({axis("other", "nowhere")}),
              refused("the axis 'other' in the view 'nowhere', which does not exist"));
  EXPECT_THAT(adding({axis("other", "")}), refused("the axis 'other' in the view ''"));
  AxisInfo odd = axis("acme", "acme");
  odd.kind = AxisKind::data;
  EXPECT_THAT(adding({odd}), refused("the axis 'acme' of another kind than model"));
  odd = axis("acme", "acme");
  odd.key = "acme";
  EXPECT_THAT(adding({odd}),
              refused("the axis 'acme' with the key 'acme'\n  hint: a key ends in _size: acme_size"));
  odd = axis("acme", "acme");
  odd.parallelism = "";
  EXPECT_THAT(adding({odd}), refused("the axis 'acme' without a word for messages"));
  for (const char* over : {"pp", "dp_cp", "ep", "sideways"})
    EXPECT_THAT(adding({}, {{"acme", {over}, "rest"}}),
                refused("the view 'acme' over '" + std::string(over) + "'"));
  EXPECT_THAT(adding({}, {{"acme", {}, "rest"}}), refused("the view 'acme' over no axis"));
  EXPECT_THAT(adding({}, {{"acme", {"dp"}, ""}}), refused("the view 'acme' without a rest"));
}

TEST(AxisTable, AddsAxesOfPluginsToSizes) {
  Sizes sizes;
  sizes.plugin_axes = {{"acme", 3}};
  EXPECT_EQ(sizes.of("acme"), 3);
  EXPECT_THAT(thrown_by([&] { (void)sizes.of("acm"); }), HasSubstr("did you mean 'acme'?"));
}

}  // namespace
}  // namespace heddle
