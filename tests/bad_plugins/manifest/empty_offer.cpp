// Bad: the entry function registers nothing.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("empty_offer", "0.1.0") {}
