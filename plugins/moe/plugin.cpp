// The entry point of mixture of experts: the block `moe:`. Expert parallelism comes later.
#include "config.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("moe", "0.1.0", "section moe") {
  heddle::OfferedSection& section = plugin.section("moe", "ep_size", heddle::moe::schema());
  section.not_built = "its configuration is read and checked, but mixture of experts is not built yet";
}
