// A microbatch's tensors on the device of the parameters.
#pragma once

#include <c10/core/Device.h>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"

namespace heddle::train {

// The batch itself if its tensors are there already; else asynchronous copies. Of documents a GPU gets none:
// the host reads them.
HEDDLE_API Batch on_device(const Batch& batch, c10::Device device);

}  // namespace heddle::train
