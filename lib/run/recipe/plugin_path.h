// The directories of HEDDLE_PLUGIN_PATH.
#pragma once

#include "heddle/base/log.h"

namespace heddle {

// Warns of each that is not there.
void warn_of_plugin_path(const Log& log);

}  // namespace heddle
