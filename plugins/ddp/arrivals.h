// Which gradients the last backward of a step still expects, and the order in which they came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::ddp {

// Parameters are numbered in the reverse of execution order. A gradient is complete when autograd has added
// all its parts in this backward.
class Arrivals {
 public:
  // `parts`: parameters of several units, whose gradients may come in parts if units are recomputed in a
  // nested backward: they are complete when the backward ends.
  Arrivals(std::vector<std::string> names, std::vector<bool> parts);

  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int parameter) const { return names_[parameter]; }

  // The last backward begins: every gradient is expected as often as learnt, else once; while learning, until
  // the backward ends.
  enum class Count { as_owed, learning };
  void begin(Count count);
  // The parameters that its graph reaches; the others get no gradient.
  void reached_only(const std::vector<bool>& reached);
  // The remaining gradients come from a queue, once for each of these; all others are complete.
  void draining(const std::vector<bool>& awaited);

  // Autograd added a gradient. True if it is now complete. Throws Error{input} if it was not expected: its
  // sum may be in flight already.
  bool arrive(int parameter);
  bool there(int parameter) const { return owed_[parameter] == 0; }

  // From now on gradients are expected as often as they came in this backward.
  void learn();
  // Every parameter in order of arrival; those without a gradient at the end.
  std::vector<int64_t> order() const;

 private:
  [[noreturn]] void refuse(int parameter) const;

  static constexpr int kUntilTheEnd = -1;
  std::vector<std::string> names_;
  std::vector<bool> parts_;
  std::vector<int> owed_, came_, learned_;
  std::vector<int64_t> sequence_;  // as they came, again with each part
  bool from_queue_ = false;
};

}  // namespace heddle::ddp
