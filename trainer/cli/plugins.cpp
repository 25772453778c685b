// `heddle plugins`: lists, inspects and checks plugins.
#include "trainer/cli/plugins.h"

#include "heddle/base/error.h"

namespace heddle::cli {

int plugins(const PluginsCommand&) {
  throw Error(ErrorCode::not_built, "heddle plugins", "this command is not built yet");
}

}  // namespace heddle::cli
