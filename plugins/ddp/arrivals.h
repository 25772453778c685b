// Which gradients the last backward of a step still owes, and the order in which they came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::ddp {

// Parameters are numbered in the reverse of execution order. A gradient is there when autograd has added it
// as often as it will in this backward.
class Arrivals {
 public:
  // `parts`: parameters of several units, whose gradients may come in parts where units are computed again in
  // a backward of their own: they are there when the backward ends.
  Arrivals(std::vector<std::string> names, std::vector<bool> parts);

  int size() const { return static_cast<int>(names_.size()); }
  const std::string& name(int parameter) const { return names_[parameter]; }

  // The last backward begins: every gradient is owed as often as learned, else once, or in a backward that is
  // learnt from until it ends.
  enum class Count { as_owed, learning };
  void begin(Count count);
  // The parameters that its graph reaches; the others will get nothing.
  void reached_only(const std::vector<bool>& reached);
  // What is left comes from a queue, once for each of these; the rest is there.
  void draining(const std::vector<bool>& awaited);

  // Autograd added something. True when the gradient is there by that. Throws Error{input} where it was not
  // owed: its sum may be on the way already.
  bool arrive(int parameter);
  bool there(int parameter) const { return owed_[parameter] == 0; }

  // From now on gradients are owed as often as they came in this backward.
  void learn();
  // Every parameter, those that came last at the end; what did not come stands after them.
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
