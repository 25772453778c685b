// Finds LibTorch: HEDDLE_TORCH, and the directories that the loader searches for this program.
#include "trainer/cli/main/torch.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <fstream>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/version.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libtorch_cpu.so";
constexpr const char* kHint =
    "set it to the directory of an installed torch " HEDDLE_TORCH_VERSION " package, or unset it";

bool holds_torch(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kLibrary, ignored);
}

// Returns the version in the package next to the libraries, such as "2.11.0+cpu"; empty: unknown.
std::string version_of(const fs::path& package) {
  std::ifstream in(package / "version.py");
  const std::string key = "__version__ = '";
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return line.substr(key.size(), line.find('\'', key.size()) - key.size());
  return "";
}

// Returns the directories that the loader searches for this program, in order. All heddle libraries have the
// same RPATH.
std::vector<fs::path> search_path() {
  Dl_serinfo size{};
  void* self = ::dlopen(nullptr, RTLD_LAZY);
  if (self == nullptr || ::dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  std::vector<char> room(size.dls_size);
  auto* found = reinterpret_cast<Dl_serinfo*>(room.data());
  *found = size;
  if (::dlinfo(self, RTLD_DI_SERINFO, found) != 0) return {};
  std::vector<fs::path> out;
  for (unsigned i = 0; i < found->dls_cnt; ++i) out.emplace_back(found->dls_serpath[i].dls_name);
  return out;
}

// Returns the directory of the libraries; empty: none.
fs::path directory_in_use() {
  if (const fs::path package = torch_of_environment(); !package.empty()) return package / "lib";
  for (const fs::path& directory : search_path())
    if (holds_torch(directory)) return directory;
  return {};
}

}  // namespace

fs::path torch_of_environment() {
  const char* given = std::getenv("HEDDLE_TORCH");
  if (given == nullptr || *given == '\0') return {};
  const fs::path package = given;
  const std::string named = "'" + package.string() + "' ";
  if (!holds_torch(package / "lib"))
    throw Error(ErrorCode::usage, "HEDDLE_TORCH", named + "contains no lib/" + kLibrary, kHint);
  std::string version = version_of(package);
  version = version.substr(0, version.find('+'));
  if (!version.empty() && version != HEDDLE_TORCH_VERSION)
    throw Error(ErrorCode::usage, "HEDDLE_TORCH",
                named + "is torch " + version + "; " HEDDLE_TORCH_VERSION " is needed", kHint);
  return package;
}

void load_torch_of_environment() {
  const fs::path package = torch_of_environment();
  if (package.empty()) return;
  const fs::path library = package / "lib" / kLibrary;
  if (::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    throw Error(ErrorCode::usage, "HEDDLE_TORCH", ::dlerror(), kHint);
}

std::string version_text() {
  std::string out = "heddle " HEDDLE_VERSION " (SDK " + std::to_string(HEDDLE_SDK_NUMBER) + ")\nLibTorch ";
  const fs::path directory = directory_in_use();
  if (directory.empty()) return out + HEDDLE_TORCH_VERSION " is required, but none was found";
  return out + version_of(directory.parent_path()) + " in " + directory.string();
}

}  // namespace heddle::cli
