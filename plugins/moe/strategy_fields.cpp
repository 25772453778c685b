// Two fields, and who wins.
#include "strategy_fields.h"

#include <string>

#include "heddle/base/error.h"

namespace heddle::moe {
namespace {

[[noreturn]] void refuse(const Node& value, const std::string& key) {
  throw Error(ErrorCode::config, value.where().empty() ? "distributed.moe." + key : value.where(),
              "moe." + key + " is " + value.written() + ", and the strategy has no field " + key,
              "leave it out of the block, or use strategy: fsdp2");
}

}  // namespace

Node change_strategy(const Node& block, Node strategy) {
  const Node& reshard = *block.find("reshard_after_forward");
  if (const Node* own = strategy.find("reshard_after_forward"); own == nullptr) {
    if (reshard.as_boolean()) refuse(reshard, "reshard_after_forward");
  } else if (own->is_null()) {
    strategy = strategy.with("reshard_after_forward", reshard);
  }
  const Node& policy = *block.find("mp_policy");
  if (policy.is_null()) return strategy;
  if (strategy.find("mp_policy") == nullptr) refuse(policy, "mp_policy");
  return strategy.with("mp_policy", policy);
}

}  // namespace heddle::moe
