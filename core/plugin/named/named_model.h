// A family of models whose exceptions carry the plugin's name.
#pragma once

#include <memory>

#include "core/plugin/named/named_object.h"
#include "heddle/model/family.h"

namespace heddle::plugin {

// A heddle::Error is passed on as it is. A null spec is an error.
class NamedModelFamily : public NamedObject<IModelFamily> {
 public:
  using NamedObject::NamedObject;
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override;
  std::vector<Node::Entry> automodel_keys(const std::string& model_type) const override;
};

}  // namespace heddle::plugin
