// Small units for tests of strategies: an embedding, layers and a head with sizes without common divisors.
#pragma once

#include "plugins/recording.h"
#include "tests/toy_unit.h"

namespace heddle::tests {

struct Toy {
  static constexpr int64_t kVocabulary = 10, kWidth = 6;
  int layers = 3;
  at::ScalarType dtype = at::kFloat;
  bool meta = true;  // false: real tensors, equal on every rank unless `shift` differs
  bool foreign = false;
  double shift = 0;  // added to real tensors
  bool tied = false;
  Events* events = nullptr;
};

// Creates the units "embed", "layer0", ..., "head". A layer has weight, bias, a scale of one row, and
// `extra`, which is used if batch.extra contains a positive value or is absent. If it is negative, the head's
// backward does not reach the units before it.
Units toy_units(const Toy& toy);
ToyUnit& toy_at(const Units& units, size_t index);

}  // namespace heddle::tests
