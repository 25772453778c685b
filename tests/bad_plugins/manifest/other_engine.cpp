// Bad: built for another LibTorch version or with another C++ standard library.
#include "manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi sdk=" HEDDLE_TEXT_OF(
    HEDDLE_SDK_NUMBER) " torch=" TORCH " library=" LIBRARY " platform=" HEDDLE_ABI_PLATFORM
                       " mode=" HEDDLE_ABI_DEBUG HEDDLE_ABI_SANITIZER "\nplugin " NAME " 0.1.0\nend\n");
NEVER_OPENED
