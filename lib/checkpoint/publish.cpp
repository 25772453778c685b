// Staging, syncing and renaming of directories.
#include "heddle/checkpoint/sharded.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include "heddle/base/error.h"
#include "lib/checkpoint/safetensors/file_writer.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"

namespace heddle::checkpoint {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& doing, const std::string& reason) {
  throw Error(ErrorCode::io, path.string(), doing + ": " + reason,
              "check the path, its permissions and the room on the disk");
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A pointer has one of two forms: a link, or a text where the file system has no links.
fs::path text_of(const fs::path& link) {
  return link.string() + ".txt";
}

// Path that announces the next target of a pointer, in the form of `pointer`.
fs::path next_of(const fs::path& pointer) {
  return parent_of(pointer) / ("." + pointer.filename().string() + ".new");
}

// The target of a pointer of either form; "": no pointer.
std::string named_by(const fs::path& pointer) {
  std::error_code missing;
  fs::path target = fs::read_symlink(pointer, missing);
  if (missing) {
    std::ifstream text;
    if (fs::is_regular_file(pointer, missing)) text.open(pointer);
    text >> target;
  }
  return target.filename().string();
}

std::string announced(const fs::path& link) {
  const std::string name = named_by(next_of(link));
  return name.empty() ? named_by(next_of(text_of(link))) : name;
}

bool is_beside(const fs::path& link, const std::string& name) {
  std::error_code ignored;
  return !name.empty() && fs::exists(parent_of(link) / name, ignored);
}

// The announced target becomes the pointer's.
void turn(const fs::path& link) {
  std::error_code failed, ignored;
  if (fs::is_symlink(next_of(link), ignored)) {
    fs::rename(next_of(link), link, failed);
    if (!failed) fs::remove(text_of(link), ignored);  // outdated; would be used once the link is removed
  } else {
    fs::rename(next_of(text_of(link)), text_of(link), failed);
    if (!failed) fs::remove(link, ignored);  // outdated; it would hide the text
  }
  if (failed) fail(link, "cannot be written", failed.message());
  sync(parent_of(link));
}

}  // namespace

void sync(const fs::path& path) {
  if (!bring_to_disk(path)) fail(path, "cannot be synced", std::strerror(errno));
}

void make_directories(const fs::path& path) {
  std::error_code failed;
  const fs::path whole = fs::absolute(path, failed).lexically_normal();
  std::vector<fs::path> fresh;
  for (fs::path at = whole; !failed && !fs::exists(at, failed) && at != at.parent_path();
       at = at.parent_path())
    fresh.push_back(at);
  fs::create_directories(whole, failed);
  if (failed) fail(path, "cannot be created", failed.message());
  for (const fs::path& one : fresh) sync(parent_of(one));
}

fs::path stage_of(const fs::path& directory) {
  return directory.string() + ".incomplete";
}

void open_stage(const fs::path& directory, fs::path stage) {
  std::error_code failed;
  if (fs::exists(directory, failed) && !(fs::is_directory(directory) && fs::is_empty(directory)))
    throw Error(ErrorCode::io, directory.string(),
                "Checkpoint directory " + directory.string() + " already holds a published checkpoint.",
                "remove it, or give another directory (a recipe: checkpoint.checkpoint_dir)");
  if (stage.empty()) stage = stage_of(directory);
  fs::remove_all(stage, failed);
  if (failed) fail(stage, "cannot be created", failed.message());
  make_directories(stage);
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

void announce(const fs::path& link, const std::string& target) {
  if (announced(link) == target) return;
  settle(link);
  std::error_code failed;
  fs::create_directory_symlink(target, next_of(link), failed);
  if (failed) write_text(next_of(text_of(link)), target + "\n");
  sync(parent_of(link));
}

void point(const fs::path& link, const std::string& target) {
  announce(link, target);
  turn(link);
}

void settle(const fs::path& link) {
  if (is_beside(link, announced(link))) return turn(link);
  std::error_code ignored;
  for (const fs::path& place : {next_of(link), next_of(text_of(link))}) fs::remove(place, ignored);
}

std::string pointed(const fs::path& link) {
  if (const std::string next = announced(link); is_beside(link, next)) return next;
  const std::string now = named_by(link);
  return now.empty() ? named_by(text_of(link)) : now;
}

}  // namespace heddle::checkpoint
