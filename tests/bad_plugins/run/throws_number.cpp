// Bad: the entry function throws an object that is not a std::exception.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("throws_number", "0.1.0") {
  throw 7;
}
