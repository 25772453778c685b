// Standard error of `heddle check` for the recipes in tests/messages/recipes.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "heddle/base/error.h"
#include "lib/data/tokens/write_tokens.h"
#include "messages/records.h"
#include "tests/environment_variable.h"
#include "trainer/cli/run_commands.h"

namespace messages {
namespace {

namespace fs = std::filesystem;
using heddle::tests::EnvironmentVariable;

const fs::path kMessages = HEDDLE_SOURCE_DIR "/tests/messages";

// Folder in which recipes are checked: the files that recipes name, and token files.
class RecipeFolder {
 public:
  RecipeFolder() : path_(fs::temp_directory_path() / ("heddle.messages." + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::copy(kMessages / "files", path_);
    write("text.txt", std::string(4000, 'a'));
    write_tokens("text.txt", "train.bin");
    fs::copy(path_ / "train.bin", path_ / "cut.bin");
    fs::resize_file(path_ / "cut.bin", 3001);
    std::string lengths;  // lengths of samples with 3 to 20 tokens
    int tokens = 0;
    for (int length = 3; length <= 20; tokens += length++) lengths += std::to_string(length) + "\n";
    write("samples.lengths", lengths);
    write("samples.txt", std::string(tokens, 'a'));
    write_tokens("samples.txt", "samples.bin");
    ::mkfifo((path_ / "fifo").c_str(), 0600);
  }
  ~RecipeFolder() { fs::remove_all(path_); }

  const fs::path& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  void write_tokens(const std::string& text, const std::string& tokens) const {
    heddle::write_byte_tokens(std::vector{(path_ / text).string()}, path_ / tokens);
  }

  fs::path path_;
};

heddle::cli::CheckCommand command_of(const Record& record, const Placeholders& placeholders) {
  heddle::cli::CheckCommand out;
  out.configs = {"run.yaml"};
  out.world_sizes = {record.ranks};
  for (const std::string& word : record.words) {
    const size_t space = word.find(' ');
    const std::string value = space == std::string::npos ? "true" : word.substr(space + 1);
    if (word == "--elsewhere")
      out.elsewhere = true;
    else if (word == "--only distributed")
      out.only_distributed = true;
    else
      out.overrides.push_back({word.substr(2, space - 2), with_values(value, placeholders)});
  }
  return out;
}

std::string base_of(const Record& record) {
  if (record.base.empty()) return "";
  std::ifstream in(kMessages / "bases" / (record.base + ".yaml"));
  EXPECT_TRUE(in) << "there is no base " << record.base;
  return {std::istreambuf_iterator<char>(in), {}};
}

class RecipeMessage : public ::testing::TestWithParam<Record> {
 protected:
  static void SetUpTestSuite() { folder_ = new RecipeFolder; }
  static void TearDownTestSuite() { delete folder_; }

  RecipeMessage() { fs::current_path(folder_->path()); }
  ~RecipeMessage() override { fs::current_path(before_); }

  inline static const RecipeFolder* folder_ = nullptr;

 private:
  const fs::path before_ = fs::current_path();
  const EnvironmentVariable plugins_{"HEDDLE_PLUGIN_PATH", std::nullopt};
  const EnvironmentVariable hub_{"HF_HUB_CACHE", "hub"}, places_{"HEDDLE_PLACES", std::nullopt};
  const EnvironmentVariable world_{"WORLD_SIZE", std::nullopt}, unset_{"UNSET_VARIABLE", std::nullopt};
};

TEST_P(RecipeMessage, IsPrinted) {
  const Record& record = GetParam();
  const Placeholders placeholders = {
      {"{build}", HEDDLE_BINARY_DIR}, {"{source}", HEDDLE_SOURCE_DIR}, {"{dir}", folder_->path().string()}};
  folder_->write("run.yaml", with_values(recipe_of(record, base_of(record)), placeholders));
  std::string thrown;
  int status = 0;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  try {
    status = heddle::cli::check(command_of(record, placeholders));
  } catch (const heddle::Error& error) {
    status = heddle::exit_status(error.code());
    thrown = error.what();
  }
  (void)::testing::internal::GetCapturedStdout();
  const std::string printed = ::testing::internal::GetCapturedStderr() + thrown;
  expect_printed(record, status, with_placeholders(printed, placeholders));
  EXPECT_FALSE(fs::exists("run")) << "a check writes nothing";
}

INSTANTIATE_TEST_SUITE_P(Of, RecipeMessage, ::testing::ValuesIn(read_records(kMessages / "recipes")),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace messages
