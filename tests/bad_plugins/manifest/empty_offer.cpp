// Bad: an entry function that forgets to offer anything.
#include "bad_plugins/plain.h"

HEDDLE_PLUGIN("empty_offer", "0.1.0") {}
