// `heddle train`: trains the model of a configuration.
#include "trainer/cli/train.h"

#include "heddle/base/error.h"

namespace heddle::cli {

int train(const TrainCommand&) {
  throw Error(ErrorCode::not_built, "heddle train", "this command is not built yet");
}

}  // namespace heddle::cli
