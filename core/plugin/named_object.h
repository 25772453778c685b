// Base of the wrappers of a plugin's objects: the object and its author.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "core/parallel/attributed.h"

namespace heddle::plugin {

// Is an Interface and holds an Inner, which is mostly one too.
template <class Interface, class Inner = Interface>
class NamedObject : public Interface {
 public:
  NamedObject(Author author, std::unique_ptr<Inner> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}

 protected:
  // Adds the plugin's name to exceptions of the call; passes on a heddle::Error.
  template <class Call>
  auto named(std::string_view doing, Call&& call) const {
    return attributed(author_, doing, call);
  }

  Author author_;
  std::unique_ptr<Inner> inner_;
};

}  // namespace heddle::plugin
