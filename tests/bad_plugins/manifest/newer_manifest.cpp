// Bad: the manifest's format version is newer than this engine.
#include "manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 7\nabi " HEDDLE_ABI_TAG "\nplugin newer_manifest 0.1.0\nend\n");
NEVER_OPENED
