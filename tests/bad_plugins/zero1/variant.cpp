// One variant of ZeRO-1 as a plugin. The macro VARIANT names a value of Fault.
#include "bad_plugins/manifest/manifest_only.h"
#include "faults.h"

const zero1::Fault zero1::kFault = zero1::Fault::VARIANT;

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi " HEDDLE_ABI_TAG
                      "\nplugin zero1_" HEDDLE_TEXT_OF(VARIANT) " 0.1.0\noffer strategy zero1\nend\n");

extern "C" __attribute__((visibility("default"))) void heddle_plugin_offer(heddle::Offer& plugin) {
  zero1::offer(plugin);
}
