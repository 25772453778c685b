// Bad in pairs: two libraries that register the same operator namespace in static initializers. LibTorch
// throws from a static initializer, so the exception cannot be caught and the process aborts.
#include <torch/library.h>

#include "bad_plugins/manifest/manifest_only.h"

HAND_WRITTEN_MANIFEST("heddle plugin manifest 1\nabi " HEDDLE_ABI_TAG "\nplugin " NAME " 0.1.0\nend\n");

namespace {
TORCH_LIBRARY(heddle_bad_static, m) {
  m.def("inc(Tensor x) -> Tensor");
}
}  // namespace
