// Text data sets in the kits, prepared in a temporary directory each time.
#pragma once

#include <memory>

#include "heddle/plugin/dataset.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// Returns the data set with these fields, which name its texts and its tokenizer. jobs: threads of the
// preparation. Throws the errors of the preparation.
std::unique_ptr<IDataset> prepared_set(const OfferedDataset& offered, const Node& fields,
                                       const DataFacts& facts, PluginRegistry& registry, int jobs);

}  // namespace heddle::kits
