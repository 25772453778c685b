// Bad: the manifest in the file's ELF section differs from the manifest that the opened library exports, as
// when the file is replaced between reading and opening.
#include "heddle/plugin/entry_point.h"
#include "manifest_only.h"

extern "C" __attribute__((section("heddle_manifest"), used)) const char read_manifest[] =
    HEDDLE_MANIFEST_TEXT(HEDDLE_ABI_TAG, "two_manifests", "0.1.0");
extern "C" __attribute__((visibility("default"))) const char heddle_plugin_manifest[];
extern "C" const char heddle_plugin_manifest[] = HEDDLE_MANIFEST_TEXT("sdk=0", "two_manifests", "0.2.0");
extern "C" __attribute__((visibility("default"))) void heddle_plugin_offer(heddle::Offer&) {
  std::abort();
}
