// A transform whose exceptions carry the plugin's name, and which did what it says.
#pragma once

#include <string>

#include "core/plugin/named/named_object.h"
#include "heddle/plugin/transform.h"

namespace heddle::plugin {

class NamedTransform : public NamedObject<ITransform> {
 public:
  using NamedObject::NamedObject;
  // Throws Error{plugin_failed} where the units are not as the result says.
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override {
    return named("told its setting", [&] { return inner_->setting(); });
  }
};

}  // namespace heddle::plugin
