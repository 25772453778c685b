// A small model family: each token predicts the next one through feed-forward layers.
#pragma once

#include <memory>
#include <vector>

#include "heddle/sdk.h"

namespace acme {

// Returns the table that `heddle plugins inspect acme` prints.
std::vector<heddle::FieldInfo> keys();

class Family : public heddle::IModelFamily {
 public:
  std::unique_ptr<heddle::ModelSpec> read(const heddle::Node& keys,
                                          heddle::UnknownKeys unknown) const override;
};

}  // namespace acme
