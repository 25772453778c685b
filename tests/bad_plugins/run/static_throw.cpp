// Bad: a static initializer throws while the library is opened, which no caller can catch.
#include <stdexcept>

#include "bad_plugins/manifest/manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi " HEDDLE_ABI_TAG "\nplugin static_throw 0.1.0\nend\n");

namespace {
int fails() {
  throw std::runtime_error("thrown from a static initialiser");
}
[[maybe_unused]] const int opened = fails();
}  // namespace
