// Model family that the plugin offers.
#pragma once

#include <memory>

#include "heddle/model/family.h"

namespace heddle::llama {

// Offers every model_type of the groups (config/model_type.h).
class Llama : public IModelFamily {
 public:
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override;
  std::vector<Node::Entry> automodel_keys(const std::string& model_type) const override;
};

}  // namespace heddle::llama
