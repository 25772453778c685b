// Errors whose place is the path of a key get the line of that key.
#pragma once

#include "heddle/base/error.h"
#include "heddle/config/node.h"

namespace heddle {

// Throws the error again. One at "distributed.cp_size" is at "run.yaml:7 distributed.cp_size" where the
// configuration has this key; plugins know the path of a key alone.
[[noreturn]] void throw_at_key(const Error& error, const Node& configuration);

// The same for what the work throws.
template <class Work>
auto at_keys(const Node& configuration, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw_at_key(error, configuration);
  }
}

}  // namespace heddle
