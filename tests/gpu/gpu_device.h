// The device of these tests, started before anything of LibTorch computes.
#pragma once

#include "heddle/mesh/device.h"

namespace heddle::tests {

IDevice& device();

}  // namespace heddle::tests
