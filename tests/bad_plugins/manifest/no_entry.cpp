// Bad: a valid manifest without an entry function.
#include "manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi " HEDDLE_ABI_TAG "\nplugin no_entry 0.1.0\nend\n");
