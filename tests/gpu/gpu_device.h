// The GPU of these tests, initialized before any LibTorch computation.
#pragma once

#include "heddle/mesh/device.h"

namespace heddle::tests {

IDevice& device();

}  // namespace heddle::tests
