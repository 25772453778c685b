// `heddle check`: validates configurations and prints the resolved setup.
#include "trainer/cli/check.h"

#include "heddle/base/error.h"

namespace heddle::cli {

int check(const CheckCommand&) {
  throw Error(ErrorCode::not_built, "heddle check", "this command is not built yet");
}

}  // namespace heddle::cli
