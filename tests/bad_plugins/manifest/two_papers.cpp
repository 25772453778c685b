// Bad: the section that is read from the file is not what the opened library exports, as when the file is
// replaced between the two.
#include "heddle/plugin/door.h"
#include "papers_only.h"

extern "C" __attribute__((section("heddle_papers"), used)) const char read_papers[] =
    HEDDLE_PAPERS_TEXT(HEDDLE_ABI_TAG, "two_papers", "0.1.0");
extern "C" __attribute__((visibility("default"))) const char heddle_plugin_papers[];
extern "C" const char heddle_plugin_papers[] = HEDDLE_PAPERS_TEXT("sdk=0", "two_papers", "0.2.0");
extern "C" __attribute__((visibility("default"))) void heddle_plugin_offer(heddle::Offer&) {
  std::abort();
}
