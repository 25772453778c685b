// What was admitted: an offer with its names from the manifest, and the plugin's name on all that it throws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/parallel/attributed.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/offer.h"

namespace heddle::plugin {

using AdmittedPlugin = std::vector<OfferedThing>;

// Makers return no null pointer. What makers, schemas, and what these make throw becomes
// Error{plugin_failed}; a heddle::Error is passed on as it is.
AdmittedPlugin take(const Offer& offer, const PluginManifest& manifest, const Author& author);

// What has the kind and this name or alias, in any case; null: nothing.
const OfferedSchema* answering(const AdmittedPlugin& all, std::string_view kind, std::string_view name);

}  // namespace heddle::plugin
