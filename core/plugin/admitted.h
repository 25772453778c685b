// What was admitted: an offer with its names from the manifest, and the plugin's name on all that it throws.
#pragma once

#include <vector>

#include "core/plugin/guard.h"
#include "core/plugin/manifest.h"
#include "heddle/plugin/offer.h"

namespace heddle::plugin {

struct AdmittedPlugin {
  std::vector<OfferedStrategy> strategies;
  std::vector<OfferedParallelizer> parallelizers;
  std::vector<OfferedSchedule> schedules;
  std::vector<OfferedSection> sections;
  std::vector<OfferedDevice> devices;
  std::vector<OfferedPlan> plans;
  std::vector<OfferedModel> models;
};

// Makers return no null pointer. What makers, schemas, parallelize, stages, apply, plan, a device and a model
// throw becomes Error{plugin_failed}; a heddle::Error is passed on as it is.
AdmittedPlugin take(const Offer& offer, const PluginManifest& manifest, const Author& author);

}  // namespace heddle::plugin
