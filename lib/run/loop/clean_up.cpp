// Removes the remains of interrupted runs from checkpoint_dir.
#include "lib/run/loop/clean_up.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <system_error>

#include "core/base/pattern.h"
#include "lib/report/loss_curve.h"
#include "lib/report/metrics_files.h"
#include "lib/run/checkpointing/keep.h"
#include "lib/run/model/checkpoint_name.h"

namespace heddle {

namespace fs = std::filesystem;

std::vector<std::string> sweep(const fs::path& root) {
  static const text::Pattern kTemporary(
      R"(((training|validation.*)\.jsonl|loss\.svg|\.probe|\.(LATEST|LOWEST_VAL)\.txt\.new)\.tmp\.[0-9]{1,18})");
  std::vector<std::string> gone;
  for (const fs::path& directory : unfinished_in(root))
    if (is_unfinished(directory)) gone.push_back(directory.filename().string());
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, failed)) {
    const fs::path& file = entry.path();
    if (kTemporary.match(file.filename().string()).empty() || !entry.is_regular_file(failed)) continue;
    if (entry.file_size(failed) == 0 || begins_with_metrics(file) || is_loss_curve(file) ||
        is_checkpoint_pointer(file))
      gone.push_back(file.filename().string());
  }
  std::sort(gone.begin(), gone.end());
  std::erase_if(gone, [&](const std::string& name) {
    std::error_code kept;
    fs::remove_all(root / name, kept);
    return static_cast<bool>(kept);
  });
  return gone;
}

void clean_up(const std::filesystem::path& root, const std::filesystem::path& stages, bool is_locked) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(root, unknown)) return;  // the first write there reports the reason
  if (!is_locked) {
    std::cerr << "warning: " << root.string()
              << " cannot be locked; make sure that no other run saves there\n";
    return;
  }
  for (const auto& place : std::set{root, stages})
    for (const std::string& name : sweep(place))
      std::cerr << "warning: removed " << (place / name).string() << ", left by an interrupted run\n";
}

}  // namespace heddle
