// Bad: the manifest offers an unknown kind of component.
#include "manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi " HEDDLE_ABI_TAG
                      "\nplugin odd_kind 0.1.0\noffer gadget lion\nend\n");
NEVER_OPENED
