// Names and values as MLflow takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/config/node.h"

namespace heddle::mlflow {

using Texts = std::vector<std::pair<std::string, std::string>>;  // by key

// Whether MLflow takes the text as a key: letters, digits, ` _-.:/`, and no path that leads elsewhere.
bool is_key(const std::string& text);
// The text as a key: what MLflow does not take becomes `_`. A key is a path in the store.
std::string key_of(const std::string& text);

// The configuration as parameters: maps down to `depth` levels below the first have keys with dots, all else
// is one text; null: all levels.
Texts params_of(const Node& configuration, std::optional<int64_t> depth);

}  // namespace heddle::mlflow
