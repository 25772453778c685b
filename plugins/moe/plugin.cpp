// The entry point of expert parallelism.
#include "config.h"
#include "heddle/sdk.h"
#include "parallelizer.h"

HEDDLE_PLUGIN("moe", "0.1.0", "section moe", "parallelizer moe") {
  plugin.section("moe", "ep_size", heddle::moe::block_schema());
  plugin.parallelizer<heddle::moe::ExpertParallel>("moe", heddle::moe::schema());
}
