// Runs one kit as one line of the report, whatever it throws.
#pragma once

#include <functional>
#include <string>

#include "heddle/testing/conformance.h"
#include "watch.h"

namespace heddle::kits {

// Thrown by a kit that does not apply: not a failure.
struct NotRun {
  std::string why;
  std::string where = {};  // of the refusal: a key of the section
};

// Adds checks to the report of the thread's watch.
class HEDDLE_API Attempts {
 public:
  using Kit = std::function<std::string()>;
  explicit Attempts(Watch& watch) : watch_(watch) {}
  // The plugin, for what it throws without a name.
  void names(const std::string& plugin) { watch_.plugin = plugin; }
  // From now on checks are of this offer: "strategy 'acme'".
  void begin_offer(const std::string& offer) { offer_ = offer, has_training_ = false; }
  // Some kit of the offer computes with it, whether it could run or not.
  bool has_training() const { return has_training_; }
  // Runs one kit, which returns its observation. True unless it failed.
  bool operator()(const std::string& rule, const Kit& kit) { return run(rule, kit, false); }
  // The same for a kit that computes with what the plugin offers, on the device of the check or the CPU.
  bool training(const std::string& rule, const Kit& kit) { return run(rule, kit, true); }
  // The same two for kits that compute on the CPU alone: where the check has a device they are not run.
  bool on_cpu(const std::string& rule, const Kit& kit) { return run(rule, without_device(kit), false); }
  bool training_on_cpu(const std::string& rule, const Kit& kit) {
    return run(rule, without_device(kit), true);
  }

 private:
  bool run(const std::string& rule, const Kit& kit, bool trains);
  Kit without_device(const Kit& kit) const;
  Watch& watch_;
  std::string offer_;
  bool has_training_ = false;
};

}  // namespace heddle::kits
