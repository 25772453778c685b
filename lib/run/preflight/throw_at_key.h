// Adds file and line to errors whose place is the path of a key.
#pragma once

#include "heddle/base/error.h"
#include "heddle/config/node.h"

namespace heddle {

// Rethrows the error. If the configuration has the key, the place becomes for example "run.yaml:7
// distributed.cp_size" instead of "distributed.cp_size"; plugins know only the path of a key.
[[noreturn]] void throw_at_key(const Error& error, const Node& configuration);

// Calls `work` and passes its errors to throw_at_key().
template <class Work>
auto at_keys(const Node& configuration, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw_at_key(error, configuration);
  }
}

}  // namespace heddle
