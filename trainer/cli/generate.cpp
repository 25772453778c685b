// `heddle generate`: continues a text with a trained model.
#include "trainer/cli/generate.h"

#include "heddle/base/error.h"

namespace heddle::cli {

int generate(const GenerateCommand&) {
  throw Error(ErrorCode::not_built, "heddle generate", "this command is not built yet");
}

}  // namespace heddle::cli
