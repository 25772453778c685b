// Copies with streaming stores, for bytes that are not needed soon.
#pragma once

#include <cstddef>

namespace heddle::mesh {

// Tensors of this size do not stay in the caches anyway.
constexpr size_t kFar = 24 * 1024 * 1024;

// memcpy past the caches: the target's lines are not read first, and what is in the caches stays there.
void copy_far(char* to, const char* from, size_t count);

}  // namespace heddle::mesh
