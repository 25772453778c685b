// Bad: calls a function that no library defines.
#include "manifest_only.h"

namespace heddle {
class Offer;
}
void a_function_that_nobody_wrote();

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi " HEDDLE_ABI_TAG "\nplugin unresolved 0.1.0\nend\n");
extern "C" __attribute__((visibility("default"))) void heddle_plugin_offer(heddle::Offer&) {
  a_function_that_nobody_wrote();
}
