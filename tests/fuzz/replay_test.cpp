// Replays the fuzzing corpus through the readers in a regular build.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "fuzz/targets.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

class FuzzCorpus : public ::testing::TestWithParam<std::string> {};

// Fails on a crash, an abort or an exception other than Error.
TEST_P(FuzzCorpus, IsReadOrRefused) {
  std::vector<fs::path> inputs;
  for (const auto& entry :
       fs::directory_iterator(fs::path(HEDDLE_SOURCE_DIR) / "tests/fuzz/corpus" / GetParam()))
    inputs.push_back(entry.path());
  ASSERT_GE(inputs.size(), 3u);
  std::sort(inputs.begin(), inputs.end());
  for (const fs::path& input : inputs) {
    SCOPED_TRACE(input.string());
    std::ostringstream bytes;
    bytes << std::ifstream(input, std::ios::binary).rdbuf();
    EXPECT_NO_THROW(fuzz::targets().at(GetParam())(bytes.str()));
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const auto& [name, read] : fuzz::targets()) out.push_back(name);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Of, FuzzCorpus, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace heddle
