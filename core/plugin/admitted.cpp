// What every kind has: names from the manifest, and a schema that carries the plugin's name.
#include "core/plugin/admitted.h"

#include "core/plugin/kinds.h"
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

const OfferedSchema* answering(const AdmittedPlugin& all, std::string_view kind, std::string_view name) {
  const std::string wanted = text::lower(name);
  for (const OfferedThing& one : all) {
    if (one.kind != kind) continue;
    if (text::lower(one.schema->name) == wanted) return one.schema.get();
    for (const std::string& alias : one.schema->aliases)
      if (text::lower(alias) == wanted) return one.schema.get();
  }
  return nullptr;
}

}  // namespace heddle::plugin
