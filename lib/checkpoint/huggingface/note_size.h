// The largest file that is read whole of a model's directory, beside its weights.
#pragma once

#include <cstdint>
#include <filesystem>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

inline constexpr uint64_t kLargestNote = uint64_t{256} << 20;  // bytes; tokenizer_files.py has the same

// Throws Error{input} for a larger file, which is not read. A missing file is reported when it is opened.
HEDDLE_API void refuse_large_note(const std::filesystem::path& file);

}  // namespace heddle::checkpoint
