// A copy of the folder, a few steps, and the parameters side by side.
#include "moves.h"

#include <algorithm>
#include <string>

#include "ends.h"

namespace kills {

namespace fs = std::filesystem;

int move_on(const std::vector<Training>& others, const fs::path& cut, const fs::path& whole) {
  const auto steps = published(whole);
  const int64_t last = std::min(published(cut).rbegin()->first + 3, steps.rbegin()->first);
  const fs::path moved = cut.string() + "_moved";
  for (const Training& other : others) {
    fs::remove_all(moved);
    fs::copy(cut, moved, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const std::string tale =
        other.name + " from step " + std::to_string(published(cut).rbegin()->first) + ": ";
    const End end = live(up_to(other, static_cast<int>(last) + 1), moved, Doom{}, -1);
    if (end.status != 0) throw Broken{tale + "status " + std::to_string(end.status) + ", " + end.errors};
    const auto after = published(moved);
    if (after.empty() || after.rbegin()->first != last) throw Broken{tale + "it did not train to the end"};
    if (const std::string difference = apart(moved / after.rbegin()->second, whole / steps.at(last));
        !difference.empty())
      throw Broken{tale + difference};
  }
  return static_cast<int>(others.size());
}

}  // namespace kills
