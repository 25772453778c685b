// The current device and streams of a thread.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

#include "lib/simulated/machine.h"

namespace heddle::simulated {

int current_device();
void set_current_device(int device);
c10::Stream current_stream(int device);
c10::Stream exchange_stream(c10::Stream stream);
// One of 32 streams of the device, in turn, as LibTorch's pool gives them.
c10::Stream stream_of_pool(int device);

// The machine's index of a stream, and that of the current one.
int index_of(c10::Stream stream);
int current_index(int device);

}  // namespace heddle::simulated
