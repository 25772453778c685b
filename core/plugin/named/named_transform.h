// A transform whose exceptions carry the plugin's name, and which did what it says.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/plugin/guard.h"
#include "heddle/plugin/transform.h"

namespace heddle::plugin {

class NamedTransform : public ITransform {
 public:
  NamedTransform(Author author, std::unique_ptr<ITransform> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}
  // Throws Error{plugin_failed} where the units are not as the result says.
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override {
    return guarded_but_errors(author_, "told its setting", [&] { return inner_->setting(); });
  }

 private:
  Author author_;
  std::unique_ptr<ITransform> inner_;
};

}  // namespace heddle::plugin
