// Bad: good papers, and no function behind them.
#include "papers_only.h"

HAND_WRITTEN_PAPERS("heddle papers 1\nabi " HEDDLE_ABI_TAG "\nplugin no_entry 0.1.0\nend\n");
