// Adds up what groups report.
#include "lib/report/loss_parts.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace heddle {

void LossParts::add(const StepReport& report) {
  const SideValues& values = report.side_values;
  tokens_ += report.label_tokens;
  if (!values.layout || report.label_tokens == 0) return;
  for (const SideLayout::Entry& entry : values.layout->entries()) {
    if (entry.spec.shown != Shown::validation_too || entry.spec.size != 1) continue;
    if (sums_.count(entry.spec.name) == 0) names_.push_back(entry.spec.name);
    sums_[entry.spec.name] +=
        values.find(entry.spec.name).item<double>() * static_cast<double>(report.label_tokens);
  }
}

std::vector<SideRecord> LossParts::means() const {
  std::vector<SideRecord> out;
  for (const std::string& name : names_)
    out.push_back({name, {sums_.at(name) / static_cast<double>(std::max<int64_t>(tokens_, 1))}, true});
  return out;
}

}  // namespace heddle
