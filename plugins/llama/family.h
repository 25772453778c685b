// The family as a plugin offers it.
#pragma once

#include <memory>

#include "heddle/model/family.h"

namespace heddle::llama {

// model_type llama, qwen2 and qwen3; and mixtral, olmoe, qwen2_moe and qwen3_moe.
class Llama : public IModelFamily {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override;
};

}  // namespace heddle::llama
