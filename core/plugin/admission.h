// Checks an offer against its manifest, and admits it under the plugin's name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/parallel/attributed.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/offer.h"

namespace heddle::plugin {

// Throws Error{plugin_failed} at the plugin's file: names that differ from the manifest, one name twice, a
// schema that does not print or refuses its own defaults, contradictory needs, an entry without a maker.
void inspect(const Offer& offer, const PluginManifest& manifest, const Author& author);

// The strategy "single", without fields, and the schedule "single": no pipeline.
std::vector<OfferedThing> offered_by_engine();

using AdmittedPlugin = std::vector<OfferedThing>;

// Makers return no null pointer. What makers, schemas, and what these make throw becomes
// Error{plugin_failed}; a heddle::Error is passed on as it is.
AdmittedPlugin take(const Offer& offer, const PluginManifest& manifest, const Author& author);

// Finds the offer of this kind with this name or alias, case-insensitively; null: none.
const OfferedSchema* answering(const AdmittedPlugin& plugin, std::string_view kind, std::string_view name);

}  // namespace heddle::plugin
