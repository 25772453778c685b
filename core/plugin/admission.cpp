// Common parts of all kinds: names from the manifest, and a schema that carries the plugin's name.
#include "core/plugin/admission.h"

#include <algorithm>
#include <set>

#include "core/parallel/single.h"
#include "core/plugin/kinds.h"
#include "core/schedule/single.h"
#include "heddle/base/text.h"

namespace heddle::plugin {
namespace {

std::vector<std::string> aliases_of(const PluginManifest& manifest, const std::string& kind,
                                    const std::string& name) {
  for (const ManifestOffer& offer : manifest.offers)
    if (offer.kind == kind && offer.name == name) return offer.aliases;
  return {};
}

}  // namespace

AdmittedPlugin take(const Offer& offer, const PluginManifest& manifest, const Author& author) {
  AdmittedPlugin out = offer.things();
  for (OfferedThing& one : out) {
    OfferedSchema& offered = *one.schema;
    const std::string thing = "the " + one.kind + " '" + offered.name + "'";
    offered.aliases = aliases_of(manifest, one.kind, offered.name);
    if (offered.resolve)
      offered.resolve = [author, thing, resolve = offered.resolve](const Node& section) {
        return attributed(author, "read the section of " + thing, [&] { return resolve(section); });
      };
    kind_of(one.kind)->name_author(offered, author);
  }
  return out;
}

const OfferedSchema* answering(const AdmittedPlugin& plugin, std::string_view kind, std::string_view name) {
  const std::string wanted = text::lower(name);
  for (const OfferedThing& one : plugin) {
    if (one.kind != kind) continue;
    if (text::lower(one.schema->name) == wanted) return one.schema.get();
    for (const std::string& alias : one.schema->aliases)
      if (text::lower(alias) == wanted) return one.schema.get();
  }
  return nullptr;
}

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

namespace {

struct NoFields {};

OfferedStrategy single() {
  OfferedStrategy offered;
  offered.name = "single";
  offered.resolve = [](const Node& section) {
    ConfigSchema<NoFields>().read(section);
    return Resolved{Node::map({}), {}};
  };
  offered.needs = parallel::make_single()->needs();
  offered.make = [](const Node&) { return parallel::make_single(); };
  return offered;
}

OfferedSchedule single_schedule() {
  OfferedSchedule offered;
  offered.name = "single";
  offered.make = [] { return schedule::make_single(); };
  return offered;
}

}  // namespace

std::vector<OfferedThing> offered_by_engine() {
  Offer offer;
  offer.add(single());
  offer.add(single_schedule());
  return offer.things();
}

}  // namespace heddle::plugin
