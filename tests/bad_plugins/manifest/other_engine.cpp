// Bad: built for another LibTorch, or with another compiler.
#include "manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi sdk=" HEDDLE_TEXT_OF(
    HEDDLE_SDK_NUMBER) " torch=" TORCH " compiler=" COMPILER " library=" HEDDLE_ABI_LIBRARY
                       " platform=" HEDDLE_ABI_PLATFORM " mode=" HEDDLE_ABI_DEBUG HEDDLE_ABI_SANITIZER
                       " cuda=" HEDDLE_TEXT_OF(HEDDLE_TORCH_CUDA) "\nplugin " NAME " 0.1.0\nend\n");
NEVER_OPENED
