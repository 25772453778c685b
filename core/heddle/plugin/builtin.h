// What the engine itself puts on the table.
#pragma once

#include "heddle/plugin/offer.h"

namespace heddle::plugin {

// The strategy "single", without fields.
OfferedStrategy single();

}  // namespace heddle::plugin
