// The table of fields in each plugin's README is the one that its schema prints.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "heddle/plugin/registry.h"
#include "trainer/cli/plugin_tables.h"

namespace heddle {
namespace {

class Readme : public testing::TestWithParam<const char*> {};

TEST_P(Readme, HoldsTheTableOfTheSchema) {
  const std::string name = GetParam();
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  const std::string table = cli::to_markdown(cli::offered_by(plugins.load(name), plugins));
  const auto file = std::filesystem::path(HEDDLE_SOURCE_DIR) / "plugins" / name / "README.md";
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_NE(text.str().find(table), std::string::npos)
      << file << " must hold this (heddle plugins inspect " << name << " --markdown):\n"
      << table;
}

INSTANTIATE_TEST_SUITE_P(Plugins, Readme, testing::Values("ddp", "fsdp2", "megatron_fsdp", "pipeline", "moe"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle
