// The kits of one model_type.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "../attempt.h"
#include "families.h"
#include "small_keys.h"

namespace heddle::kits {

// A model_type of a family, and the keys of a small model of it.
struct ModelSubject {
  const Families& families;
  const OfferedModel& offered;
  std::string type;
  std::function<Node()> keys;  // throws NotRun where the family refuses them

  std::unique_ptr<ModelSpec> read() const { return read_model(offered, keys()); }
};

// Its description, its forward and gradients on one rank, and trainings along every axis.
void run_type_kits(const ModelSubject& model, Attempts& attempt);

}  // namespace heddle::kits
