// The gallery of plugins for tests: their files, folders with copies, and errors of calls.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "heddle/base/error.h"

namespace gallery {

namespace fs = std::filesystem;

inline fs::path file(const std::string& name) {
  return fs::path(HEDDLE_BINARY_DIR) / "tests/bad_plugins" / ("libheddle_" + name + ".so");
}

// A folder with copies of some plugins, deleted after the test.
class Place {
 public:
  explicit Place(const std::vector<std::string>& plugins = {}) {
    std::string name = (fs::temp_directory_path() / "heddle_place_XXXXXX").string();
    path_ = mkdtemp(name.data());
    for (const std::string& plugin : plugins) add(file(plugin), "libheddle_" + plugin + ".so");
  }
  ~Place() {
    std::error_code failure;
    fs::remove_all(path_, failure);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const fs::path& path() const { return path_; }
  fs::path add(const fs::path& from, const std::string& as) const {
    fs::copy_file(from, path_ / as);
    return path_ / as;
  }
  // Adds the first `bytes` bytes of a file.
  fs::path add_cut(const fs::path& from, const std::string& as, uintmax_t bytes) const {
    const fs::path copy = add(from, as);
    fs::resize_file(copy, bytes);
    return copy;
  }

 private:
  fs::path path_;
};

// Returns the error of a call. Fails the test if nothing is thrown.
inline heddle::Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const heddle::Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {heddle::ErrorCode::internal, "", "", ""};
}

}  // namespace gallery
