// Finds devices on the search path of plugins.
#include "trainer/cli/plugins/check_device.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "heddle/base/text.h"
#include "heddle/plugin/registry.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "heddle plugins check --device";
constexpr const char* kSimulated = "simulated";
constexpr int kSimulatedRanks = 8;

// Looks in each directory of the search path and in its sibling `simulated`. The library is not next to the
// plugins, because a run would use the first device that it finds.
kits::KitDevice simulated() {
  setenv("HEDDLE_SIMULATED", "late", /*replace=*/0);  // read by the library in the kits' process
  const std::string file = "libheddle_simulated.so";
  std::vector<std::string> looked;
  for (const fs::path& place : plugin::search_path({}))
    for (const fs::path& folder : {place, place.parent_path() / kSimulated}) {
      if (fs::is_regular_file(folder / file)) return {kSimulated, folder / file, kSimulatedRanks};
      looked.push_back(folder.string());
    }
  throw Error(ErrorCode::plugin_missing, kWhere, file + " is not in " + text::join(looked),
              "build the target heddle_simulated, or add its directory to HEDDLE_PLUGIN_PATH");
}

// Returns the first available device, as a run without dist_env.backend does.
kits::KitDevice cuda() {
  const std::vector<fs::path> search_path = plugin::search_path({});
  PluginRegistry registry(search_path);
  std::string why;
  for (const PluginFile& file : plugin::files_in(search_path))
    for (const PluginFile::Offer& offer : file.offers) {
      if (offer.kind != OfferedDevice::kKind || offer.name == kSimulated || !file.fault.empty()) continue;
      const std::string absent = registry.device(offer.name)->make()->absent();
      if (absent.empty()) return {offer.name, file.path, 1};
      why += (why.empty() ? "" : "; ") + offer.name + ": " + absent;
    }
  throw Error(
      ErrorCode::plugin_missing, kWhere,
      "no device is available on this machine" + (why.empty() ? ": no plugin offers one" : " (" + why + ")"),
      "use --device simulated, which needs no GPU");
}

}  // namespace

std::optional<kits::KitDevice> device_of_check(const std::string& name) {
  if (name.empty() || name == "cpu") return std::nullopt;
  if (name == kSimulated) return simulated();
  if (name == "cuda") return cuda();
  const std::vector<std::string> names = {"cpu", "cuda", kSimulated};
  const std::string near = text::nearest(name, names);
  throw Error(
      ErrorCode::usage, kWhere, "unknown device '" + name + "'",
      (near.empty() ? "" : "did you mean " + near + "? ") + "available devices: " + text::join(names));
}

}  // namespace heddle::cli
