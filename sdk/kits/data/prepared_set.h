// A set of texts in the kits: prepared in a directory of its own each time.
#pragma once

#include <memory>

#include "heddle/plugin/dataset.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// The set with these fields, which name its texts and its tokenizer. jobs: threads of the preparation. Throws
// what the preparation throws.
std::unique_ptr<IDataset> prepared_set(const OfferedDataset& offered, const Node& fields,
                                       const DataFacts& facts, PluginRegistry& registry, int jobs);

}  // namespace heddle::kits
