// Plain statistics on the host.
#include "heddle/model/load_summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/model/side_outputs.h"

namespace heddle::model {
namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median_of(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

// GROUP/load_N: the length of GROUP, 0 for another name.
size_t group_of_load(const std::string& name) {
  const std::string kMark = "/load_";
  const size_t at = name.rfind(kMark);
  if (at == name.npos || at + kMark.size() == name.size()) return 0;
  const bool number = name.find_first_not_of("0123456789", at + kMark.size()) == name.npos;
  return number ? at : 0;
}

}  // namespace

LoadMeasures measure(const LayerLoad& load) {
  LoadMeasures out;
  const auto experts = static_cast<double>(load.counts.size());
  const double total = std::accumulate(load.counts.begin(), load.counts.end(), 0.0), mean = total / experts;
  double squares = 0, entropy = 0, dead = 0;
  for (const double count : load.counts) {
    squares += (count - mean) * (count - mean);
    dead += count == 0 ? 1 : 0;
    if (count > 0) entropy -= count / total * std::log(count / total);
    out.utilization.push_back(total > 0 ? count / mean : 0);
  }
  out.dead_fraction = dead / experts;
  if (total == 0) return out;
  out.cv = experts > 1 ? std::sqrt(squares / (experts - 1)) / mean : 0;
  out.diversity = std::exp(entropy) / experts;
  return out;
}

NamedNumbers summarise(const std::vector<LayerLoad>& loads) {
  if (loads.empty()) return {};
  std::vector<double> cv, utilization, dead, diversity;
  for (const LayerLoad& load : loads) {
    const LoadMeasures one = measure(load);
    cv.push_back(one.cv);
    dead.push_back(one.dead_fraction);
    diversity.push_back(one.diversity);
    utilization.insert(utilization.end(), one.utilization.begin(), one.utilization.end());
  }
  std::sort(cv.begin(), cv.end());
  std::sort(utilization.begin(), utilization.end());
  const size_t n = utilization.size();
  return {{"cv_mean", mean_of(cv)},
          {"cv_median", median_of(cv)},
          {"cv_min", cv.front()},
          {"cv_max", cv.back()},
          {"expert_utilization_min", utilization.front()},
          {"expert_utilization_p25", utilization[n / 4]},
          {"expert_utilization_median", median_of(utilization)},
          {"expert_utilization_p75", utilization[3 * n / 4]},
          {"expert_utilization_max", utilization.back()},
          {"dead_expert_frac_mean", mean_of(dead)},
          {"expert_diversity_mean", mean_of(diversity)},
          {"expert_diversity_min", *std::min_element(diversity.begin(), diversity.end())}};
}

NamedNumbers summarise_loads(const SideValues& values) {
  if (!values.layout || values.layout->empty()) return {};
  std::vector<LayerLoad> loads;
  std::string group;
  at::Tensor host;
  for (const SideLayout::Entry& entry : values.layout->entries()) {
    const size_t length = group_of_load(entry.spec.name);
    if (length == 0) continue;
    group = entry.spec.name.substr(0, length + 1);
    if (!host.defined()) host = values.values.to(at::kCPU).contiguous();
    const double* first = host.const_data_ptr<double>() + entry.report;
    loads.push_back({std::stoll(entry.spec.name.substr(length + 6)), {first, first + entry.spec.size}});
  }
  NamedNumbers out = summarise(loads);
  for (auto& [name, value] : out) name = group + name;
  return out;
}

}  // namespace heddle::model
