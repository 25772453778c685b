// A microbatch's tensors where the parameters are.
#pragma once

#include <c10/core/Device.h>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"

namespace heddle::train {

// The batch itself when its tensors are there already; else copies, which the host does not wait for.
HEDDLE_API Batch on_device(const Batch& batch, c10::Device device);

}  // namespace heddle::train
