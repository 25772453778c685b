// Bad: papers of a form that comes after this engine.
#include "papers_only.h"

HAND_WRITTEN_PAPERS("heddle papers 7\nabi " HEDDLE_ABI_TAG "\nplugin newer_papers 0.1.0\nend\n");
NEVER_OPENED
