// Orders layouts by estimates that are corrected by similar dry steps.
#include "lib/run/plan/candidates.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace heddle {
namespace {

constexpr double kRefused = 100;  // penalty of a layout if all similar ones are refused
constexpr double kTooLarge = 4;   // exponent of the penalty for memory beyond the limit
// Factor by which a layout unlike all tried ones may be faster than expected and end the search.
constexpr double kUncertain = 2;
// Share by which the memory of a layout unlike all tried ones may be less than expected.
constexpr double kUncertainMemory = 0.3;

// Distances of a factor of two, in the order of Candidates::Sizes.
constexpr Candidates::Sizes kDistances = {0.5, 0.5, 0.4, 0.4, 0.5, 0.3, 0.3, 0.4};

Candidates::Sizes sizes_of(const Layout& layout) {
  const auto steps = [](int64_t size) { return std::log2(static_cast<float>(size)); };
  return {steps(layout.tp),  steps(layout.cp),   steps(layout.pp),           steps(layout.ep),
          steps(layout.etp), steps(layout.rows), steps(layout.dp_replicate), steps(layout.virtual_stages)};
}

// Returns the similarity of two layouts, from 1 (equal) to 0.
double similarity(const Layout& one, const Candidates::Sizes& sizes, const Layout& other,
                  const Candidates::Sizes& of_other) {
  double distance = 0;
  for (size_t i = 0; i < sizes.size(); ++i) distance += kDistances[i] * std::abs(sizes[i] - of_other[i]);
  if (one.strategy != other.strategy) distance += 1.5;
  if (one.recomputation != other.recomputation) distance += 1;
  if (one.precision != other.precision) distance += 1;
  if (one.cp_method != other.cp_method) distance += 0.7;
  if (one.reshards != other.reshards) distance += 0.7;
  if (one.defers != other.defers) distance += 0.7;
  if ((one.pp > 1) != (other.pp > 1)) distance += 0.7;
  if ((one.ep > 1) != (other.ep > 1)) distance += 0.5;
  return std::exp(-2 * distance);
}

}  // namespace

void Candidates::add(Layout layout, double seconds, double memory) {
  const Sizes sizes = sizes_of(layout);
  all_.push_back({{std::move(layout), seconds, memory}, sizes});
}

double Candidates::score(const Entry& entry, double curiosity) const {
  const double uncertainty = 1 / (1 + entry.weight), weight = std::max(entry.weight, 1e-300);
  double out = entry.candidate.seconds * std::exp(entry.seconds / weight - std::log(curiosity) * uncertainty);
  const double memory =
      entry.candidate.memory * std::exp(entry.memory / weight - kUncertainMemory * uncertainty);
  if (limit_ > 0 && memory > limit_) out *= std::pow(memory / limit_, kTooLarge);
  const double refused = entry.refused / (1e-3 + entry.weight + entry.refused);
  return out * (1 + kRefused * refused * refused);
}

std::optional<Candidates::Candidate> Candidates::take(double curiosity, double most) {
  auto best = all_.end();
  double least = 0;
  bool is_near = false;
  for (auto entry = all_.begin(); entry != all_.end(); ++entry) {
    const double seconds = score(*entry, curiosity);
    is_near = is_near || score(*entry, kUncertain) <= most;
    if (best == all_.end() || seconds < least) best = entry, least = seconds;
  }
  if (!is_near) return std::nullopt;
  Candidate out = std::move(best->candidate);
  *best = std::move(all_.back());
  all_.pop_back();
  return out;
}

void Candidates::learn(const Candidate& tried, double seconds, double memory) {
  const double of_seconds = std::log(seconds / tried.seconds), of_memory = std::log(memory / tried.memory);
  const Sizes sizes = sizes_of(tried.layout);
  for (Entry& entry : all_) {
    const double weight = similarity(entry.candidate.layout, entry.sizes, tried.layout, sizes);
    entry.weight += weight;
    entry.seconds += weight * of_seconds;
    entry.memory += weight * of_memory;
  }
}

void Candidates::learn_refusal(const Candidate& tried) {
  const Sizes sizes = sizes_of(tried.layout);
  for (Entry& entry : all_)
    entry.refused += similarity(entry.candidate.layout, entry.sizes, tried.layout, sizes);
}

}  // namespace heddle
