// A family of models whose exceptions carry the plugin's name.
#pragma once

#include <memory>

#include "core/plugin/guard.h"
#include "heddle/model/family.h"

namespace heddle::plugin {

// A heddle::Error is passed on as it is. A null spec is an error.
class NamedModelFamily : public IModelFamily {
 public:
  NamedModelFamily(Author author, std::unique_ptr<IModelFamily> inner);
  std::unique_ptr<ModelSpec> read(const Node& keys, UnknownKeys unknown) const override;

 private:
  Author author_;
  std::unique_ptr<IModelFamily> inner_;
};

}  // namespace heddle::plugin
