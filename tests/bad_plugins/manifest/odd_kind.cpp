// Bad: papers that offer a kind of thing that there is not.
#include "papers_only.h"

HAND_WRITTEN_PAPERS("heddle papers 1\nabi " HEDDLE_ABI_TAG
                    "\nplugin odd_kind 0.1.0\noffer optimizer lion\nend\n");
NEVER_OPENED
