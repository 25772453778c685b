// Checks a whole offer before any of it is admitted.
#pragma once

#include "core/parallel/attributed.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/offer.h"

namespace heddle::plugin {

// Throws Error{plugin_failed} at the plugin's file: names that differ from the manifest, one name twice, a
// schema that does not print or refuses its own defaults, contradictory needs, an entry without a maker.
void inspect(const Offer& offer, const PluginManifest& manifest, const Author& author);

}  // namespace heddle::plugin
