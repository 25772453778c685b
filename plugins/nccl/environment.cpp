// Defaults of environment variables. Variables that are set are not changed.
#include "environment.h"

#include <cstdlib>
#include <string_view>

namespace heddle::nccl {

void set_environment() {
  for (const auto& [name, value] : kSettings) {
    const bool allocates = std::string_view(name) == "PYTORCH_ALLOC_CONF";
    if (allocates && std::getenv("PYTORCH_CUDA_ALLOC_CONF") != nullptr) continue;
    setenv(name, value, /*overwrite=*/0);
  }
}

}  // namespace heddle::nccl
