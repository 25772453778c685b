// Collects what parallelizers and modules do to a run besides splitting it, and checks for conflicts.
#pragma once

#include <memory>

#include "heddle/base/export.h"
#include "heddle/parallel/plan.h"
#include "heddle/parallel/stages.h"

namespace heddle::parallel {

// Collects them over the whole model, before units of other stages are dropped, so that ranks agree. Throws
// Error{plugin_conflict}: two different declarations of one name, two transforms of one order.
HEDDLE_API Attached attached_to(const Units& units, const Plan& plan);

// The modules and units among these that implement AfterUpdate.
std::vector<UpdateListener> listeners(const Units& units);

}  // namespace heddle::parallel
