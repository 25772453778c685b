// The data set of Megatron's blends, an offer like that of a plugin.
#pragma once

#include "heddle/plugin/dataset.h"

namespace heddle {

const OfferedDataset& blend_files();

}  // namespace heddle
