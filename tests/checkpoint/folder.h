// Temporary directory of a test, removed in the destructor.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "heddle/base/error.h"

namespace heddle::tests {

class Folder {
 public:
  Folder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name =
        std::string(test->test_suite_name()) + "." + test->name() + "." + std::to_string(::getpid());
    for (char& c : name)
      if (c == '/') c = '_';
    path_ = std::filesystem::temp_directory_path() / ("heddle." + name);
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// Runs `body` and returns the text of the Error that it throws, with the path of `folder` replaced by FOLDER.
template <class Body>
std::string error_of(const Folder& folder, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    std::string text = error.what();
    for (size_t at; (at = text.find(folder.path().string())) != std::string::npos;)
      text.replace(at, folder.path().string().size(), "FOLDER");
    return text;
  }
  return "no error";
}

}  // namespace heddle::tests
