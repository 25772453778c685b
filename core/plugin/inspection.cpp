// Names of an offer against the manifest, and the rules of each kind.
#include "core/plugin/inspection.h"

#include <algorithm>
#include <set>

#include "core/plugin/kinds.h"
#include "heddle/base/text.h"

namespace heddle::plugin {
namespace {

class Names {
 public:
  Names(const PluginManifest& manifest, const OfferChecks& checks) : manifest_(manifest), checks_(checks) {}

  // Names: each once, and each in the manifest.
  void name(const std::string& kind, const std::string& name, const std::vector<std::string>& aliases) {
    const std::string thing = "the " + kind + " '" + name + "'";
    if (!seen_.insert(kind + " " + text::lower(name)).second)
      checks_.refuse("it offers " + thing + " twice", "offer it once");
    const auto paper =
        std::find_if(manifest_.offers.begin(), manifest_.offers.end(),
                     [&](const ManifestOffer& offer) { return offer.kind == kind && offer.name == name; });
    if (paper == manifest_.offers.end())
      checks_.refuse("it offers " + thing + ", but its manifest does not",
                     "write \"" + kind + " " + name + "\" in HEDDLE_PLUGIN");
    if (!aliases.empty() &&
        std::set(aliases.begin(), aliases.end()) != std::set(paper->aliases.begin(), paper->aliases.end()))
      checks_.refuse("the aliases of " + thing + " are '" + text::join(aliases) + "', and in its manifest '" +
                         text::join(paper->aliases) + "'",
                     "write them in HEDDLE_PLUGIN only");
    for (const std::string& alias : paper->aliases)
      if (!seen_.insert(kind + " " + text::lower(alias)).second)
        checks_.refuse("'" + alias + "' names two things of the kind " + kind, "give each its own words");
  }

  void the_whole_manifest() const {
    for (const ManifestOffer& offer : manifest_.offers)
      if (!seen_.contains(offer.kind + " " + text::lower(offer.name)))
        checks_.refuse(
            "its manifest declares the " + offer.kind + " '" + offer.name + "', which it does not offer",
            "offer it in the body of HEDDLE_PLUGIN, or take it out of the manifest");
  }

 private:
  const PluginManifest& manifest_;
  const OfferChecks& checks_;
  std::set<std::string> seen_;
};

}  // namespace

void inspect(const Offer& offer, const PluginManifest& manifest, const Author& author) {
  const OfferChecks checks(author);
  Names names(manifest, checks);
  if (offer.things().empty())
    checks.refuse("it offers nothing", "call plugin.strategy<...>(...) in the body of HEDDLE_PLUGIN");
  for (const OfferedThing& one : offer.things()) {
    names.name(one.kind, one.schema->name, one.schema->aliases);
    kind_of(one.kind)->inspect(checks, "the " + one.kind + " '" + one.schema->name + "'", *one.schema);
  }
  names.the_whole_manifest();
}

}  // namespace heddle::plugin
