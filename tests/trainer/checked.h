// Runs `heddle check` in this process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/folder.h"
#include "tests/thrown.h"
#include "trainer/cli/run_commands.h"

namespace heddle::tests {

class Checked : public ::testing::Test {
 protected:
  Checked() {
    setenv("HEDDLE_PLUGIN_PATH", (std::string(HEDDLE_BINARY_DIR) + "/plugins").c_str(), 1);
    unsetenv("WORLD_SIZE");
  }

  std::string file(const std::string& name, const std::string& text) const {
    return folder_.write(name, text).string();
  }

  // Runs the command and stores its output. Returns -1 if it throws; the error is in error_.
  int run(const cli::CheckCommand& command) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    int status = -1;
    error_ = thrown_by([&] { status = cli::check(command); });
    out_ = ::testing::internal::GetCapturedStdout();
    err_ = ::testing::internal::GetCapturedStderr();
    return status;
  }

  const Folder folder_;
  std::string out_, err_, error_;
};

}  // namespace heddle::tests
