// What the engine itself offers.
#pragma once

#include "heddle/plugin/offer.h"

namespace heddle::plugin {

// The strategy "single", without fields.
OfferedStrategy single();
// The schedule "single": no pipeline.
OfferedSchedule single_schedule();

}  // namespace heddle::plugin
