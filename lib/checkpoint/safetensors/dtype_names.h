// The dtypes of safetensors files and their names in a header.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace heddle::checkpoint {

// "BF16" to a dtype; empty where LibTorch has no such dtype.
std::optional<c10::ScalarType> dtype_named(std::string_view name);

// A dtype to "BF16"; empty text where the format has no such dtype.
std::string name_of_dtype(c10::ScalarType dtype);

}  // namespace heddle::checkpoint
