// The kits by kind.
#include "kind_kits.h"

#include <map>
#include <string>

#include "heddle/base/error.h"

namespace heddle::kits {
namespace {

// Complete before the library's first function runs.
std::map<std::string_view, KindKits::Run>& table() {
  static std::map<std::string_view, KindKits::Run> kits;
  return kits;
}

}  // namespace

KindKits::KindKits(std::string_view kind, Run run) {
  table().emplace(kind, run);
}

void KindKits::run(std::string_view kind, const OfferedSchema& offered, const CheckedPlugin& plugin,
                   Attempts& attempt) {
  const auto found = table().find(kind);
  if (found == table().end())
    throw Error(ErrorCode::internal, "kits", "the kind '" + std::string(kind) + "' has no kits");
  found->second(offered, plugin, attempt);
}

}  // namespace heddle::kits
