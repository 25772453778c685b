// Bad: the entry function throws.
#include <stdexcept>

#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("throws", "0.1.0") {
  throw std::runtime_error("the licence server is away");
}
