// The directories of the search path, and the plugin files in them.
#include "core/plugin/search_path.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <system_error>

#include "heddle/base/text.h"
#include "heddle/plugin/registry.h"

namespace heddle::plugin {
namespace {

constexpr std::string_view kPrefix = "libheddle_", kSuffix = ".so";

std::vector<std::filesystem::path> files_of(const std::filesystem::path& place) {
  std::vector<std::filesystem::path> out;
  std::error_code failure;
  for (std::filesystem::directory_iterator at(place, failure), end; !failure && at != end;
       at.increment(failure)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix) && name.size() > kPrefix.size() + kSuffix.size())
      out.push_back(at->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool answers(const FoundFile& file, std::string_view kind, std::string_view name) {
  if (!file.manifest) return text::lower(file.named_by_file()) == text::lower(name);
  if (kind == "plugin") return text::lower(file.manifest->name) == text::lower(name);
  return std::any_of(
      file.manifest->offers.begin(), file.manifest->offers.end(),
      [&](const ManifestOffer& offer) { return offer.kind == kind && offer.answers_to(name); });
}

std::filesystem::path engine_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&abi_tag), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failure;
  const std::filesystem::path real = std::filesystem::canonical(info.dli_fname, failure);
  return failure ? std::filesystem::path() : real.parent_path();
}

}  // namespace

std::string FoundFile::named_by_file() const {
  const std::string file = path.filename().string();
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

std::vector<FoundFile> scan(const std::vector<std::filesystem::path>& search_path) {
  std::vector<FoundFile> out;
  std::set<std::filesystem::path> seen;
  for (size_t place = 0; place < search_path.size(); ++place) {
    for (const std::filesystem::path& path : files_of(search_path[place])) {
      std::error_code failure;
      const std::filesystem::path real = std::filesystem::canonical(path, failure);
      if (!failure && !seen.insert(real).second) continue;
      FoundFile file{path, place, std::nullopt, std::nullopt};
      try {
        file.manifest = read_manifest(path);
      } catch (const Error& error) {
        file.unreadable = error;
      }
      out.push_back(std::move(file));
    }
  }
  return out;
}

std::vector<PluginFile> files_in(const std::vector<std::filesystem::path>& search_path) {
  std::vector<PluginFile> out;
  for (const FoundFile& file : scan(search_path)) {
    PluginFile& one = out.emplace_back();
    one.path = file.path;
    one.name = file.manifest ? file.manifest->name : file.named_by_file();
    if (file.unreadable) one.fault = file.unreadable->message();
    if (!file.manifest) continue;
    one.version = file.manifest->version;
    one.offers.assign(file.manifest->offers.begin(), file.manifest->offers.end());
    try {
      check_abi(*file.manifest, file.path);
    } catch (const Error& error) {
      one.fault = error.message();
    }
  }
  return out;
}

std::vector<const FoundFile*> find(const std::vector<FoundFile>& files, std::string_view kind,
                                   std::string_view name) {
  std::vector<const FoundFile*> out;
  for (const FoundFile& file : files) {
    if (answers(file, kind, name)) out.push_back(&file);
  }
  return out;
}

std::vector<std::filesystem::path> search_path(std::span<const std::filesystem::path> from_yaml) {
  std::vector<std::filesystem::path> out(from_yaml.begin(), from_yaml.end());
  if (const char* listed = std::getenv("HEDDLE_PLUGIN_PATH")) {
    std::string_view rest = listed;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      if (end > 0) out.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  if (const std::filesystem::path engine = engine_directory(); !engine.empty())
    out.push_back(engine / "plugins");
  return out;
}

}  // namespace heddle::plugin
