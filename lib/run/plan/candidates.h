// Layouts that a search has not tried yet, ordered by what the tried ones showed.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "lib/run/plan/layout.h"

namespace heddle {

// Each dry step corrects the estimates of the remaining layouts: more, the more similar they are to the tried
// one. The result does not depend on time.
class Candidates {
 public:
  // `memory`: bytes for tensors on a device; 0: unknown.
  explicit Candidates(double memory) : limit_(memory) {}

  // Adds a layout with its estimates.
  void add(Layout layout, double seconds, double memory);

  // A layout with the estimates that it was added with.
  struct Candidate {
    Layout layout;
    double seconds = 0, memory = 0;
  };
  // Removes and returns the most promising layout. Layouts unlike all tried ones are preferred by up to a
  // factor of `curiosity`. Empty: none is left that may take at most `most` seconds.
  std::optional<Candidate> take(double curiosity, double most);

  // Learns from a dry step.
  void learn(const Candidate& tried, double seconds, double memory);
  // Learns that the engine refuses a layout.
  void learn_refusal(const Candidate& tried);
  // Removes the layouts for which `is_hopeless` is true.
  template <class Predicate>
  void drop(Predicate is_hopeless) {
    std::erase_if(all_, [&](const Entry& entry) { return is_hopeless(entry.candidate.layout); });
  }

  // Logarithms of the sizes of a layout: tp, cp, pp, ep, etp, rows, replicas, virtual stages.
  using Sizes = std::array<float, 8>;

 private:
  struct Entry {
    Candidate candidate;
    Sizes sizes;
    // Sums over dry steps, weighted by similarity: of weights, of logarithms of measured by estimated values,
    // and of the weights of refusals.
    double weight = 0, seconds = 0, memory = 0, refused = 0;
  };
  // Expected seconds, multiplied by a penalty if the layout is likely too large or refused.
  double score(const Entry& entry, double curiosity) const;

  double limit_;
  std::vector<Entry> all_;
};

}  // namespace heddle
