// Axes of plugins: their keys, sizes and views, and the order of parallelizers.
#include <gmock/gmock.h>

#include "heddle/transport/threads.h"
#include "lib/testing/small_model.h"
#include "setups.h"

namespace heddle::tests {

using namespace kits;
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_of(const std::string& plugin) {
  return HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_" + plugin + ".so";
}

struct Axes {
  PluginRegistry plugins{{std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"}};
  explicit Axes(const std::string& plugin = "acme") { plugins.load(file_of(plugin)); }
  heddle::Setup setup(const std::string& section, int world = 8) {
    return engine::validate(config::read_text("distributed: " + section + "\n", "run.yaml"), plugins, world);
  }
};

std::vector<std::string> names(const heddle::Setup& setup) {
  std::vector<std::string> out;
  for (const auto& [name, fields] : setup.parallelizers) out.push_back(name);
  return out;
}

TEST(PluginAxes, HaveASizeUnderDistributedAndAView) {
  Axes acme;
  const heddle::Setup setup = acme.setup("{acme_size: 2, tp_size: 2}");
  EXPECT_EQ(setup.sizes.of("acme"), 2);
  EXPECT_EQ(setup.sizes.of("acme_shard"), 2);
  EXPECT_EQ(setup.views,
            (std::vector<View>{{"acme", {"dp", "cp"}, {{"acme_shard", 2}, {"acme", 2}, {"brisk", 1}}}}));
  EXPECT_THAT(names(setup), ElementsAre("tensor", "acme"));
  EXPECT_TRUE(setup.not_built.empty());
  EXPECT_THAT(
      engine::to_json(setup),
      HasSubstr(R"("views": {"acme": {"axes": ["acme_shard", "acme", "brisk"], "shape": [2, 2, 1]}})"));
  EXPECT_THAT(engine::to_text(setup), HasSubstr("\nview acme: acme_shard 2, acme 2, brisk 1\n"));
  EXPECT_THAT(engine::fingerprint(setup, acme.plugins, ""), HasSubstr("size of acme: 2\n"));
}

TEST(PluginAxes, NeedNothingAtSizeOne) {
  Axes acme;
  const heddle::Setup setup = acme.setup("{acme_size: 1}");
  EXPECT_TRUE(setup.views.empty());
  EXPECT_TRUE(setup.parallelizers.empty());
  EXPECT_TRUE(acme.setup("{}").views.empty());
}

TEST(PluginAxes, HaveAViewForExperts) {
  EXPECT_EQ(printed("{ep_size: 4, tp_size: 2}", 8, "views"),
            R"({"expert": {"axes": ["ep_shard", "ep"], "shape": [2, 4]}})");
  EXPECT_EQ(printed("{}", 8, "views"), "no views");
}

TEST(PluginAxes, OrderParallelizersByTheNamesTheyRequire) {
  EXPECT_THAT(names(Axes().setup("{acme_size: 2, brisk_size: 2, tp_size: 2}")),
              ElementsAre("tensor", "brisk", "acme"));
  EXPECT_THAT(names(Axes("acme_cycle").setup("{brisk_size: 2}")), ElementsAre("brisk"));
}

TEST(PluginAxes, ArePartOfTheMesh) {
  const Node yaml = config::read_text(
      "distributed: {strategy: ddp, acme_size: 2}\ndist_env: {backend: gloo}\n", "run.yaml");
  ThreadWorld::run(4, [&](Rendezvous& rendezvous) {
    Axes acme;
    const engine::ModelHost host{
        rendezvous, [](const heddle::Setup&) { return heddle::kits::small_model({}); }, {}, 42, ""};
    engine::Model model = engine::model(yaml, acme.plugins, host);
    EXPECT_EQ(model.mesh.size("acme"), 2);
    EXPECT_EQ(model.mesh.rank("acme"), rendezvous.rank() % 2);
    EXPECT_EQ(model.mesh.rank("acme_shard"), rendezvous.rank() / 2);
    EXPECT_EQ(model.mesh.size("ep"), 1);
    EXPECT_FALSE(model.mesh.has("ep"));
  });
}

}  // namespace
}  // namespace heddle::tests
