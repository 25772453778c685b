// LibTorch's switches for casting, declared as in ATen/autocast_mode.h of 2.11.0, which includes every
// operator and costs a command 5 s.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/macros/Export.h>
#include <torch/version.h>

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 11, "compare the declarations again");

namespace at::autocast {

TORCH_API bool is_autocast_enabled(c10::DeviceType device);
TORCH_API void set_autocast_enabled(c10::DeviceType device, bool enabled);
TORCH_API c10::ScalarType get_autocast_dtype(c10::DeviceType device);
TORCH_API void set_autocast_dtype(c10::DeviceType device, c10::ScalarType dtype);
TORCH_API void clear_cache();
TORCH_API int increment_nesting();
TORCH_API int decrement_nesting();
TORCH_API bool is_autocast_cache_enabled();
TORCH_API void set_autocast_cache_enabled(bool enabled);

}  // namespace at::autocast
