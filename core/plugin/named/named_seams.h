// What a parallelizer's seams throw, later and inside a model, comes out with the parallelizer's name.
#pragma once

#include <cstddef>
#include <map>

#include "core/parallel/attributed.h"
#include "heddle/model/module.h"
#include "heddle/model/unit.h"

namespace heddle::plugin {

// Recorded before apply(), which adds to the seams.
class NamedSeams {
 public:
  explicit NamedSeams(const Units& units);
  // Wraps what was added since.
  void name(const Units& units, const Author& author) const;

 private:
  std::map<const Seam*, size_t> before_;
};

}  // namespace heddle::plugin
