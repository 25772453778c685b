// Standard error of the command lines in tests/messages/commands.
#include <gtest/gtest.h>

#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "messages/records.h"

namespace messages {
namespace {

namespace fs = std::filesystem;

const fs::path kMessagesFolder = HEDDLE_SOURCE_DIR "/tests/messages";

class CommandMessage : public ::testing::TestWithParam<Record> {
 protected:
  static void SetUpTestSuite() {
    files_ = new flow::TrainingFiles;
    fs::copy(kMessagesFolder / "files", files_->path("."));
  }
  static void TearDownTestSuite() { delete files_; }

  inline static const flow::TrainingFiles* files_ = nullptr;
};

TEST_P(CommandMessage, IsPrinted) {
  const Record& record = GetParam();
  const std::string folder = fs::path(files_->path("x")).parent_path().string();
  const Placeholders placeholders = {
      {"{build}", HEDDLE_BINARY_DIR}, {"{source}", HEDDLE_SOURCE_DIR}, {"{dir}", folder}};
  std::string commands = "cd '" + folder + "'; PATH=" HEDDLE_BINARY_DIR ":$PATH";
  for (const std::string& command : record.words) commands += "\n" + with_values(command, placeholders);
  const flow::Outcome outcome = flow::shell(commands);
  expect_printed(record, outcome.status, with_placeholders(outcome.error, placeholders));
}

INSTANTIATE_TEST_SUITE_P(Of, CommandMessage, ::testing::ValuesIn(read_records(kMessagesFolder / "commands")),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace messages
