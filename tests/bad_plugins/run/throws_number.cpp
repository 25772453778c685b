// Bad: the entry function throws what is no std::exception.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("throws_number", "0.1.0") {
  throw 7;
}
