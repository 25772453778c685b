// The engine's own offers.
#pragma once

#include <vector>

#include "heddle/plugin/offer.h"

namespace heddle::plugin {

// The strategy "single", without fields, and the schedule "single": no pipeline.
std::vector<OfferedThing> offered_by_engine();

}  // namespace heddle::plugin
