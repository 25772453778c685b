// Parts of a loss over the groups of a validation set.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heddle/train/step.h"
#include "lib/report/metrics.h"

namespace heddle {

// Of side outputs that are shown in validations too.
class LossParts {
 public:
  // A group's values, which are means over its label tokens. Waits for the device where there are any.
  void add(const StepReport& report);
  // Means over all label tokens, in the order of the model.
  std::vector<SideRecord> means() const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, double> sums_;
  int64_t tokens_ = 0;
};

}  // namespace heddle
