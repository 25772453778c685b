// Entry point of the plugin moe.
#include "config.h"
#include "heddle/sdk.h"
#include "parallelizer.h"

HEDDLE_PLUGIN("moe", "0.1.0", "section moe", "parallelizer moe") {
  heddle::OfferedSection& section = plugin.section("moe", "ep_size", heddle::moe::block_schema());
  section.at_size_one = heddle::moe::at_size_one;
  section.strategy_fields = {"reshard_after_forward", "mp_policy"};
  plugin.parallelizer<heddle::moe::ExpertParallel>("moe", heddle::moe::schema());
}
