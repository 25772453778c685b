// Staging, syncing and renaming of directories.
#include "heddle/checkpoint/publish.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/checkpoint/safetensors_writer.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& doing, const std::string& reason) {
  throw Error(ErrorCode::io, path.string(), doing + ": " + reason,
              "check the path, its permissions and the room on the disk");
}

void sync(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const std::string reason = std::strerror(errno);
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) fail(path, "cannot be synced", reason);
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path next_of(const fs::path& link) {
  return parent_of(link) / ("." + link.filename().string() + ".new");
}

}  // namespace

fs::path stage_of(const fs::path& directory) {
  return directory.string() + ".incomplete";
}

void open_stage(const fs::path& directory, fs::path stage) {
  std::error_code failed;
  if (fs::exists(directory, failed))
    throw Error(ErrorCode::io, directory.string(),
                "Checkpoint directory " + directory.string() + " already holds a published checkpoint.",
                "Remove it, or point checkpoint.checkpoint_dir at a fresh directory, before re-running this "
                "step.");
  if (stage.empty()) stage = stage_of(directory);
  fs::remove_all(stage, failed);
  if (!failed) fs::create_directories(stage, failed);
  if (failed) fail(stage, "cannot be created", failed.message());
}

void publish(const fs::path& directory, fs::path stage) {
  if (stage.empty()) stage = stage_of(directory);
  std::error_code failed;
  for (auto at = fs::recursive_directory_iterator(stage, failed); !failed && at != fs::end(at);
       at.increment(failed))
    if (!at->is_symlink()) sync(at->path());
  if (failed) fail(stage, "cannot be read", failed.message());
  sync(stage);
  fs::rename(stage, directory, failed);
  if (failed) fail(directory, "cannot be published", failed.message());
  sync(parent_of(directory));
  if (parent_of(stage) != parent_of(directory)) sync(parent_of(stage));
}

bool on_one_file_system(const fs::path& a, const fs::path& b) {
  const auto device_of = [](fs::path path) {
    std::error_code failed;
    path = fs::absolute(path, failed);
    struct stat status {};
    while (::stat(path.c_str(), &status) != 0 && path != path.parent_path()) path = path.parent_path();
    return status.st_dev;
  };
  return device_of(a) == device_of(b);
}

void point(const fs::path& link, const std::string& target) {
  const fs::path fresh = next_of(link);
  std::error_code failed;
  fs::remove(fresh, failed);
  fs::create_directory_symlink(target, fresh, failed);
  if (failed) {
    write_text(link.string() + ".txt", target + "\n");
    fs::remove(link, failed);  // of another time: it would hide the text
    return;
  }
  fs::rename(fresh, link, failed);
  if (failed) fail(link, "cannot be written", failed.message());
  sync(parent_of(link));
}

void announce(const fs::path& link, const std::string& target) {
  std::error_code ignored;
  fs::remove(next_of(link), ignored);
  fs::create_directory_symlink(target, next_of(link), ignored);
}

std::string pointed(const fs::path& link) {
  std::error_code missing;
  const fs::path next = fs::read_symlink(next_of(link), missing).filename();
  if (!missing && fs::exists(parent_of(link) / next, missing)) return next.string();
  const fs::path target = fs::read_symlink(link, missing);
  if (!missing) return target.filename().string();
  std::string name;
  std::ifstream note(link.string() + ".txt");
  note >> name;
  return name;
}

}  // namespace heddle::checkpoint
