// Several texts, or an error, as one text.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle::mesh {

// Each after its length.
HEDDLE_API std::string pack(std::span<const std::string> texts);
HEDDLE_API std::vector<std::string> unpack(std::string_view packed);

HEDDLE_API std::string pack(const Error& error);
HEDDLE_API Error unpack_error(std::string_view packed);

}  // namespace heddle::mesh
