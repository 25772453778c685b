// Order of transforms, and axes that they refuse.
#include "lib/run/model/transforms.h"

#include <gmock/gmock.h>

#include <memory>

#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;

struct Nothing : ITransform {
  explicit Nothing(std::string text = "") : text(std::move(text)) {}
  Transformed apply(Units&, const TransformRun&) const override { return {}; }
  std::string setting() const override { return text; }
  const std::string text;
};

class TransformsOfARun : public ::testing::Test {
 protected:
  OfferedTransform& add(const std::string& name, int order = 0, const std::string& setting = "") {
    auto& offered = *offered_.emplace_back(std::make_unique<OfferedTransform>());
    offered.order = order;
    offered.make = [setting](const Node&) { return std::make_unique<Nothing>(setting); };
    const Node given = config::read_text("{rank: 8}", "run.yaml");
    sections_.push_back({given, name, &offered, OfferedTransform::kKind, given});
    return offered;
  }
  std::vector<std::unique_ptr<OfferedTransform>> offered_;
  std::vector<PluginSection> sections_;
};

TEST_F(TransformsOfARun, ApplyByOrderThenName) {
  add("zebra", -1);
  add("b");
  add("a");
  add("first", -2);
  std::vector<std::string> names;
  for (const ActiveTransform& one : make_transforms(sections_, 7)) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre("first", "zebra", "a", "b"));
}

TEST_F(TransformsOfARun, AreComparedBySettingOrFields) {
  add("a", 0, "rank of eight");
  add("b");
  const auto made = make_transforms(sections_, 7);
  EXPECT_EQ(made[0].setting, "rank of eight");
  EXPECT_EQ(made[1].setting, R"({"rank": 8})");
  EXPECT_EQ(made[1].run.seed, 7u);
}

TEST_F(TransformsOfARun, RefuseAxesAboveSizeOne) {
  add("mine").refuses = {{"cp", "mine does not support context parallelism"},
                         {"tp", "nor tensor parallelism"}};
  heddle::Setup setup;
  setup.configuration = config::read_text("distributed: {strategy: fsdp2, tp_size: 2}\n", "run.yaml");
  setup.sizes.tp = 2;
  EXPECT_EQ(tests::thrown_by([&] { refuse_axes(sections_, setup); }),
            "error[config] run.yaml:1 distributed.tp_size: nor tensor parallelism\n  hint: the section mine "
            "does not support it: set tp_size: 1, or remove mine");
  setup.sizes.tp = 1;
  EXPECT_EQ(tests::thrown_by([&] { refuse_axes(sections_, setup); }), "");
}

}  // namespace
}  // namespace heddle
