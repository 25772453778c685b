// `heddle data`: makes a token file from texts.
#include "trainer/cli/data.h"

#include "heddle/base/error.h"

namespace heddle::cli {

int data(const DataCommand&) {
  throw Error(ErrorCode::not_built, "heddle data", "this command is not built yet");
}

}  // namespace heddle::cli
