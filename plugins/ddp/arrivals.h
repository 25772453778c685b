// Gradients that the last backward of a step still expects, and the order in which gradients arrived.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::ddp {

// Parameters are numbered in reverse execution order. A gradient is complete when autograd has added all its
// parts in this backward.
class Arrivals {
 public:
  // `parts`: parameters shared by several units. If units are recomputed in a nested backward, the gradients
  // of such parameters may arrive in parts, so they are complete only when the backward ends.
  Arrivals(std::vector<std::string> names, std::vector<bool> parts);

  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int parameter) const { return names_[parameter]; }

  // Begins the last backward. Each gradient is expected as often as learn() recorded, else once. While
  // learning, gradients are complete when the backward ends.
  enum class Count { as_owed, learning };
  void begin(Count count);
  // Restricts the expected gradients to the parameters that the graph reaches.
  void reached_only(const std::vector<bool>& reached);
  // The remaining gradients come from a queue, once per parameter in `awaited`. All other gradients are
  // complete.
  void draining(const std::vector<bool>& awaited);

  // Records that autograd added a gradient. Returns true if the gradient is now complete. Throws Error{input}
  // if it was not expected, because its reduction may be in flight.
  bool arrive(int parameter);
  bool there(int parameter) const { return owed_[parameter] == 0; }

  // Records how often each gradient came in this backward. Later backwards expect as many.
  void learn();
  // Every parameter in order of arrival. Parameters without a gradient come last.
  std::vector<int64_t> order() const;

 private:
  [[noreturn]] void refuse(int parameter) const;

  static constexpr int kUntilTheEnd = -1;
  std::vector<std::string> names_;
  std::vector<bool> parts_;
  std::vector<int> owed_, came_, learned_;
  std::vector<int64_t> sequence_;  // parameters in order of arrival, once per part
  bool from_queue_ = false;
};

}  // namespace heddle::ddp
