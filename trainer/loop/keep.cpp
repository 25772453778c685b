// The pointers of a directory of checkpoints.
#include "trainer/loop/keep.h"

#include "heddle/checkpoint/publish.h"

namespace heddle {

void keep(const Job&, const std::filesystem::path& directory, const Losses&) {
  checkpoint::point(directory.parent_path() / "LATEST", directory.filename().string());
}

}  // namespace heddle
