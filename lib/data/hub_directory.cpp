// Finds names of the Hugging Face hub on this machine.
#include "lib/data/hub_directory.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "core/base/pattern.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlaces = "HEDDLE_PLACES";

bool holds(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Whether the name has the form ORG/NAME.
bool may_be_on_hub(const std::string& name) {
  static const text::Pattern kName("[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*");
  return !kName.match(name).empty();
}

fs::path hub_cache() {
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
}

fs::path cached(const std::string& name, HubKind what) {
  const size_t slash = name.find('/');
  return hub_cache() / ((what == HubKind::model ? "models--" : "datasets--") + name.substr(0, slash) + "--" +
                        name.substr(slash + 1));
}

[[noreturn]] void refuse_snapshot(const fs::path& place, const std::string& what, const std::string& name) {
  throw Error(ErrorCode::input, place.string(), what,
              "run `hf download " + name + "` to download it again, or add a line `" + name +
                  " PATH` to the file that " + kPlaces + " names");
}

// Returns the snapshot of the revision, a name or a commit. Without refs/main, the only snapshot.
fs::path snapshot_in(const fs::path& cached, const std::string& revision, const std::string& name) {
  const std::string reference = revision.empty() ? "main" : revision;
  std::ifstream named(cached / "refs" / reference);
  std::string commit;
  if (!(named >> commit))
    commit = revision;
  else if (!holds(cached / "snapshots" / commit))
    refuse_snapshot(
        cached, "holds no snapshot " + text::excerpt(commit) + ", which refs/" + reference + " names", name);
  fs::path only;
  std::error_code failed;
  if (!commit.empty() && holds(cached / "snapshots" / commit)) {
    only = cached / "snapshots" / commit;
  } else if (revision.empty()) {
    for (const auto& entry : fs::directory_iterator(cached / "snapshots", failed)) {
      if (!only.empty())
        refuse_snapshot(cached, "holds several snapshots, and no refs/main that names one of them", name);
      only = entry.path();
    }
  }
  if (!only.empty() && fs::is_empty(only, failed)) refuse_snapshot(only, "is an empty snapshot", name);
  return only;
}

fs::path listed(const std::string& name) {
  const std::string file = variable(kPlaces);
  if (file.empty()) return {};
  std::ifstream in(file);
  if (!in)
    throw Error(ErrorCode::input, file,
                "cannot be read; the environment variable " + std::string(kPlaces) + " names it",
                "unset it, or name a file with lines NAME PATH");
  int64_t number = 0;
  fs::path found;
  for (std::string line; std::getline(in, line);) {
    const std::string where = file + ":" + std::to_string(++number);
    std::istringstream words(line);
    std::string key, path;
    if (!(words >> key)) continue;
    if (!std::getline(words >> std::ws, path))
      throw Error(ErrorCode::input, where, "'" + text::excerpt(key) + "' has no path", "a line is NAME PATH");
    if (key != name || !found.empty()) continue;
    std::error_code ignored;
    if (!fs::exists(path, ignored))
      throw Error(ErrorCode::input, where,
                  text::excerpt(path) + " does not exist; it is the place of " + name,
                  "correct the line, or remove it");
    found = path;
  }
  return found;
}

}  // namespace

fs::path hub_directory(const fs::path& name, HubKind kind, const std::string& revision) {
  std::error_code ignored;
  if (fs::exists(name, ignored)) return name;
  if (const fs::path place = listed(name.string()); !place.empty()) return place;
  if (!may_be_on_hub(name.string())) return name;
  const fs::path place = snapshot_in(cached(name.string(), kind), revision, name.string());
  return place.empty() ? name : place;
}

std::string hub_directory_hint(const fs::path& name, HubKind kind) {
  if (!may_be_on_hub(name.string())) return "";
  const std::string repo_type = kind == HubKind::model ? "" : " --repo-type dataset";
  return "heddle downloads nothing: run `hf download " + name.string() + repo_type +
         "` to download it to the hub's cache (" + cached(name.string(), kind).string() +
         "), or add a line `" + name.string() + " PATH` to the file that " + kPlaces + " names";
}

}  // namespace heddle
