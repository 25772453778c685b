// What the block changes in the strategy's fields.
#pragma once

#include "heddle/config/node.h"

namespace heddle::moe {

// reshard_after_forward holds where the strategy's own is null; an mp_policy takes the place of the
// strategy's. Throws Error{config} for a value that the strategy has no field for.
Node change_strategy(const Node& block, Node strategy);

}  // namespace heddle::moe
