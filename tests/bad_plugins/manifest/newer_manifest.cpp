// Bad: manifest of a form that comes after this engine.
#include "manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 7\nabi " HEDDLE_ABI_TAG "\nplugin newer_manifest 0.1.0\nend\n");
NEVER_OPENED
