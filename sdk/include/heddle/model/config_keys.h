// Reading the keys of a Hugging Face config.json, for families of models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "heddle/model/family.h"

namespace heddle::model {

// Throws Error{config} at the node.
[[noreturn]] HEDDLE_API void refuse(const Node& node, const std::string& message,
                                    const std::string& hint = "");

// The value of a key; null if it is absent or null.
HEDDLE_API const Node* given(const Node& keys, std::string_view key);
// The value of a key, or `otherwise` if it is absent or null.
HEDDLE_API int64_t integer_or(const Node& keys, std::string_view key, int64_t otherwise);
HEDDLE_API double real_or(const Node& keys, std::string_view key, double otherwise);
HEDDLE_API bool boolean_or(const Node& keys, std::string_view key, bool otherwise);
HEDDLE_API std::string text_or(const Node& keys, std::string_view key, const std::string& otherwise);

// Larger than in any model; products of two such sizes, in bytes, fit into 64 bits.
inline constexpr int64_t kLargestSize = int64_t{1} << 28, kMostLayers = 100'000;
// A size from 1 to `most`.
HEDDLE_API int64_t size_or(const Node& keys, std::string_view key, int64_t otherwise,
                           int64_t most = kLargestSize);

// Refuses keys that are neither in the family's table nor without effect in any model (architectures,
// use_cache, ...): in a YAML all of them, in a config.json those near a key of the table.
HEDDLE_API void check_keys(const Node& keys, std::span<const FieldInfo> table, UnknownKeys unknown);

}  // namespace heddle::model
