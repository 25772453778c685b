// Selection of parallelizers by axis, with the strategy's fields and named plans.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>

#include "heddle/model/module_unit.h"

#include "setups.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

// Returns the fields of the only parallelizer as JSON.
std::string fields(const std::string& section, int world = 4) {
  const Setup setup = setup_of(section, world);
  if (setup.parallelizers.size() != 1) return std::to_string(setup.parallelizers.size()) + " parallelizers";
  return setup.parallelizers[0].first + " " + config::to_json(setup.parallelizers[0].second);
}

TEST(Parallelizers, AreSelectedByAxisWithTheStrategysFields) {
  EXPECT_EQ(fields("{tp_size: 2, sequence_parallel: true}"),
            R"(tensor {"tp_plan": null, "sequence_parallel": true, "enable_async_tensor_parallel": false})");
  EXPECT_EQ(fields("{sequence_parallel: true}"), "0 parallelizers");  // one rank of tp
  EXPECT_EQ(fields("{strategy: ddp, tp_size: 2}"),
            R"(tensor {"tp_plan": null, "sequence_parallel": false, "enable_async_tensor_parallel": false})");
}

TEST(Parallelizers, GetAPlanByName) {
  EXPECT_THAT(fields("{tp_size: 2, tp_plan: llama}"),
              HasSubstr(R"("tp_plan": {"model.embed_tokens": "rowwise_rep", )"));
  EXPECT_THAT(fields("{tp_size: 2, tp_plan: {lm_head: colwise}}"), HasSubstr(R"({"lm_head": "colwise"})"));
}

TEST(Parallelizers, PreferANamedFile) {
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_splits_tp.so");
  const auto setup = [&](const std::string& section) {
    return engine::validate(config::read_text("distributed: " + section + "\n", "run.yaml"), plugins, 4);
  };
  const heddle::Setup two = setup("{tp_size: 2}");
  ASSERT_EQ(two.parallelizers.size(), 1u);
  EXPECT_EQ(two.parallelizers[0].first, "second");
  EXPECT_THAT(setup("{}").warnings, ::testing::IsEmpty());
  setup("{tp_size: 2, sequence_parallel: false, tp_plan: null}");
}

// Two directories with a plugin each, and one with both.
TEST(Parallelizers, PreferTheFirstDirectoryAndRefuseTwoInOneDirectory) {
  namespace fs = std::filesystem;
  std::string made = (fs::temp_directory_path() / "heddle_axis_XXXXXX").string();
  const fs::path root = mkdtemp(made.data());
  const fs::path second = fs::path(HEDDLE_BINARY_DIR) / "tests/bad_plugins/libheddle_splits_tp.so";
  const fs::path plugins = fs::path(HEDDLE_BINARY_DIR) / "plugins";
  const auto lay = [&](const std::string& place, const fs::path& file) {
    fs::create_directories(root / place);
    fs::copy_file(file, root / place / file.filename());
  };
  lay("mine", second);
  for (const char* place : {"all", "both"})
    for (const char* name : {"fsdp2", "tensor"})
      lay(place, plugins / ("libheddle_" + std::string(name) + ".so"));
  lay("both", second);
  const auto split_by = [&](std::vector<fs::path> places) {
    PluginRegistry registry(std::move(places));
    const auto yaml = config::read_text("distributed: {tp_size: 2}\n", "run.yaml");
    return engine::validate(yaml, registry, 4).parallelizers.at(0).first;
  };
  EXPECT_EQ(split_by({root / "mine", root / "all"}), "second");
  EXPECT_EQ(split_by({root / "all", root / "mine"}), "tensor");
  EXPECT_THAT(
      thrown_by([&] { split_by({root / "both"}); }),
      HasSubstr("error[plugin_conflict] distributed.tp_size: two plugins split the axis tp: 'second' and "
                "'tensor'\n  hint: remove one of them from that directory, or name the "
                "other's file under 'plugins:'"));
  fs::remove_all(root);
}

TEST(Parallelizers, KnowThePlansOfEveryPlugin) {
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_splits_tp.so");
  ASSERT_NE(plugins.plan("seconds"), nullptr);
  EXPECT_EQ(config::to_json(plugins.plan("SECONDS")->resolve(Node::map({})).values),
            R"({"a.*.b": "colwise"})");
  EXPECT_EQ(plugins.plan("thirds"), nullptr);
}

TEST(Parallelizers, ApplyForTheirSectionWithoutAnAxis) {
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_batches.so");
  const auto setup = [&](const std::string& section) {
    return engine::validate(config::read_text("distributed: " + section + "\n", "run.yaml"), plugins, 2);
  };
  EXPECT_TRUE(setup("{strategy: ddp}").parallelizers.empty());
  EXPECT_TRUE(setup("{strategy: ddp, shifter: null}").parallelizers.empty());
  const heddle::Setup two = setup("{strategy: ddp, tp_size: 2, shifter: {shift: 3}}");
  ASSERT_EQ(two.parallelizers.size(), 2u);
  EXPECT_EQ(two.parallelizers[1].first, "shifter");
  EXPECT_EQ(config::to_json(two.parallelizers[1].second), R"({"shift": 3})");
  EXPECT_THAT(engine::fingerprint(two, plugins, ""), HasSubstr("distributed.shifter.shift: 3\n"));
  const Plan plan = engine::choose(setup("{strategy: ddp, shifter: {shift: 3}}"), plugins);
  ASSERT_EQ(plan.parallelizers.size(), 1u);
  Batch batch;
  batch.tokens = at::arange(11).view({1, 11});
  AloneRendezvous rendezvous;
  plan.parallelizers[0]->transform(batch, mesh::build({}, rendezvous, ""));
  EXPECT_EQ(batch.tokens[0][10].item<int64_t>(), 2);
}

class WholeRows : public Module {
 public:
  std::string_view kind() const override { return "whole_rows"; }
  ModuleTraits traits() const override {
    return {.refuses = {{"cp", "this model supports no context parallelism"}}};
  }

 protected:
  at::Tensor forward(at::Tensor x, const Batch&) override { return x; }
};

TEST(Parallelizers, ReportTheModelsReasonForARefusedAxis) {
  const auto said = [](const std::string& section) {
    const heddle::Setup setup = setup_of(section, 4);
    const Plan plan = engine::choose(setup, built_plugins());
    Units units;
    units.push_back(std::make_unique<ModuleUnit>("layers.0", "", std::make_unique<WholeRows>()));
    return thrown_by([&] { engine::check_model(plan, setup, units); });
  };
  EXPECT_EQ(said("{strategy: fsdp2, cp_size: 2}"),
            "error[config] run.yaml:1 distributed.cp_size: this model supports no context parallelism\n"
            "  hint: 'layers.0' (whole_rows) of the model refuses it: set cp_size: 1");
  EXPECT_EQ(said("{strategy: fsdp2}"), "");
}

}  // namespace
}  // namespace heddle::tests
