// Names and values in the form that MLflow accepts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/config/node.h"

namespace heddle::mlflow {

using Texts = std::vector<std::pair<std::string, std::string>>;  // sorted by key

// Returns whether MLflow accepts the text as a key: letters, digits, ` _-.:/`, and no path outside of the
// store.
bool is_key(const std::string& text);
// Converts a text to a key by replacing characters that MLflow does not accept with `_`. A key is a path in
// the store.
std::string key_of(const std::string& text);

// Flattens the configuration to parameters. Keys of maps are joined with dots down to `depth` levels below
// the first, and deeper values become one text. null: all levels.
Texts params_of(const Node& configuration, std::optional<int64_t> depth);

}  // namespace heddle::mlflow
