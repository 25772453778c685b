// The kits of one model_type.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "../attempt.h"
#include "families.h"
#include "small_keys.h"

namespace heddle::kits {

// A model_type of a family, and the keys of a small model of this type.
struct ModelSubject {
  const Families& families;
  const OfferedModel& offered;
  std::string type;
  std::function<Node()> keys;  // throws NotRun if the family refuses the keys

  std::unique_ptr<ModelSpec> read() const { return read_model(offered, keys()); }
};

// Runs the kits of its description, its forward and gradients on one rank, and trainings along every axis.
void run_type_kits(const ModelSubject& model, Attempts& attempt);

}  // namespace heddle::kits
