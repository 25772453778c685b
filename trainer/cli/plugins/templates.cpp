// Finds the templates of `heddle plugins new`, without LibTorch.
#include "trainer/cli/plugins/templates.h"

#include <algorithm>

namespace heddle::cli {

namespace fs = std::filesystem;

fs::path template_directory() {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path built = here / "share/heddle/template";
  return fs::is_directory(built, ignored) ? built : here.parent_path() / "share/heddle/template";
}

std::vector<std::string> template_names() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(template_directory(), ignored))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace heddle::cli
