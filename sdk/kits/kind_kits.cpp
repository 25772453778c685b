// Table of kits by kind.
#include "kind_kits.h"

#include <algorithm>
#include <map>
#include <string>

#include "heddle/base/error.h"

namespace heddle::kits {
namespace {

struct Entry {
  KindKits::Run run;
  KindRules rules;
};

// Returns the table, which is complete before the first function of the library runs.
std::map<std::string_view, Entry>& table() {
  static std::map<std::string_view, Entry> kits;
  return kits;
}

std::string why_untrained(const OfferedSchema& offered, const std::vector<int>& ranks) {
  if (!offered.not_built.empty()) return offered.not_built;
  if (ranks.empty()) return "the check has no ranks to train on";
  if (std::none_of(ranks.begin(), ranks.end(), [](int each) { return each > 1; }))
    return "its kits need at least 2 ranks, but --ranks has only 1";
  return "no kit computes with it";
}

}  // namespace

KindKits::KindKits(std::string_view kind, Run run, KindRules rules) {
  table().emplace(kind, Entry{run, rules});
}

void KindKits::run(std::string_view kind, const OfferedSchema& offered, const CheckedPlugin& plugin,
                   Attempts& attempt) {
  const auto found = table().find(kind);
  if (found == table().end())
    throw Error(ErrorCode::internal, "kits", "the kind '" + std::string(kind) + "' has no kits");
  const std::string offer = std::string(kind) + " '" + offered.name + "'";
  attempt.begin_offer(offer);
  if (plugin.options.device && !found->second.rules.on_device) {
    attempt.training(offer + ": its kits", [&]() -> std::string {
      throw NotRun{"kits of the kind '" + std::string(kind) +
                   "' do not use a device; a check without --device runs them"};
    });
    return attempt.begin_offer("");
  }
  found->second.run(offered, plugin, attempt);
  if (found->second.rules.trains && !attempt.has_training())
    attempt.training(offer + ": is trained",
                     [&]() -> std::string { throw NotRun{why_untrained(offered, plugin.options.ranks)}; });
  attempt.begin_offer("");
}

bool KindKits::trains_on_device(std::string_view kind) {
  const auto found = table().find(kind);
  return found != table().end() && found->second.rules.trains && found->second.rules.on_device;
}

bool KindKits::takes_fields(std::string_view kind) {
  const auto found = table().find(kind);
  return found != table().end() && found->second.rules.takes_fields;
}

}  // namespace heddle::kits
