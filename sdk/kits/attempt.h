// Attempts, which run each kit as one line of the report and convert its exceptions to results.
#pragma once

#include <functional>
#include <string>

#include "heddle/testing/conformance.h"
#include "watch.h"

namespace heddle::kits {

// Thrown by a kit that does not apply. Not a failure.
struct NotRun {
  std::string why;
  std::string where = {};  // place of the refusal, a key of the section
};

// Adds checks to the report of this thread's Watch.
class HEDDLE_API Attempts {
 public:
  using Kit = std::function<std::string()>;
  explicit Attempts(Watch& watch) : watch_(watch) {}
  // Sets the plugin to which exceptions without a plugin's name are attributed.
  void names(const std::string& plugin) { watch_.plugin = plugin; }
  // Assigns the following checks to this offer: "strategy 'acme'".
  void begin_offer(const std::string& offer) { offer_ = offer, has_training_ = false; }
  // Returns whether a kit of the offer computes with it, whether the kit could run or not.
  bool has_training() const { return has_training_; }
  // Runs one kit, which returns its observation. Returns false if it failed.
  bool operator()(const std::string& rule, const Kit& kit) { return run(rule, kit, false); }
  // Runs a kit that computes with the offer, on the device of the check or on the CPU.
  bool training(const std::string& rule, const Kit& kit) { return run(rule, kit, true); }
  // Run kits that only support the CPU. If the check has a device, they are not run.
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
