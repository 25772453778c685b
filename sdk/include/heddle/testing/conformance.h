// The conformance kits, which `heddle plugins check` runs on a plugin's file and a plugin's tests call. A
// program that calls them links Heddle::kits.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/plugin/registry.h"

namespace heddle::kits {

// A rule and its result.
struct Check {
  std::string rule;  // "strategy 'acme' on 2 ranks: owned(): a tied parameter once"
  bool passed = false;
  std::string detail;   // the observation or the fault
  bool ran = true;      // false: it does not apply to this plugin or cannot run here; `detail` has the reason
  bool trains = false;  // whether it computes with the offer on some ranks
  // The offer under test: "strategy 'acme'", or a model with its model_type. Empty: the file.
  std::string offer = {};

  // Returns a line: "ok    RULE: DETAIL", "FAIL  ..." or "--    RULE: not run: DETAIL".
  std::string text() const {
    const std::string word = !ran ? "--    " : passed ? "ok    " : "FAIL  ";
    return word + rule + (detail.empty() ? "" : (ran ? ": " : ": not run: ") + detail) + "\n";
  }
};

// The checks of a plugin.
struct Report {
  std::vector<Check> checks;

  // Returns whether there are checks and all of them passed.
  bool passed() const {
    for (const Check& check : checks)
      if (!check.passed) return false;
    return !checks.empty();
  }
  // Returns the offers with which no check computed, so that their correctness is unknown. Each offer of a
  // kind that trains has a check that `trains`, whether it ran or not.
  std::vector<std::string> untrained() const {
    std::vector<std::string> out;
    for (const Check& check : checks) {
      const auto same = [&](const Check& other) {
        return other.trains && other.ran && other.offer == check.offer;
      };
      if (!check.trains || std::any_of(checks.begin(), checks.end(), same)) continue;
      if (std::find(out.begin(), out.end(), check.offer) == out.end()) out.push_back(check.offer);
    }
    return out;
  }
  std::string text() const {  // one line per check
    std::string out;
    for (const Check& check : checks) out += check.text();
    return out;
  }
};

inline constexpr const char* kFieldsOption = "--fields";  // place of errors in KitOptions::fields

// A device on which the kits train, besides the CPU.
struct KitDevice {
  std::string name;            // for messages: "simulated"
  std::filesystem::path file;  // library of the plugin that offers it
  int ranks = 1;               // maximum number of threads of a process that may each have one
};

// Options of check_plugin().
struct KitOptions {
  // Data-parallel sizes with which strategies and parallelizers train; empty: no training.
  std::vector<int> ranks = {1, 2, 3};
  // YAML map of fields that override defaults, "{bucket_mb: 1}". Each offer gets the fields that it has. The
  // kits compare in float32: unless set here, they set `mp_policy` of a strategy to float32, and fields with
  // "bucket" in their name to the minimum of their range.
  std::string fields = "{}";
  std::function<void(const std::string& rule)> begins = {};  // called before each check
  std::function<void(const Check& check)> ended = {};        // called after each check
  // The device on which models are trained, for comparison with results on the CPU. Empty: the CPU. With a
  // device, kits that only support the CPU are not run and report that. LibTorch is not used before.
  std::optional<KitDevice> device = {};
  // Time limit of one kit in seconds. A kit that exceeds it fails and is the last one; the threads of its
  // ranks keep running.
  double time_limit = 60;
};

// Runs every kit for all offers of the file, in this process, with ranks as threads. A plugin that ends the
// process ends it here too; `heddle plugins check` uses a separate process. Throws Error{config} at
// kFieldsOption if `fields` is not a map, or has a key that no offer has.
HEDDLE_API Report check_plugin(const std::filesystem::path& file, const KitOptions& options = {});

// Runs the kits of one strategy, configured by a section `distributed:` as YAML: "strategy: acme, bucket_mb:
// 1". Throws Error{plugin_missing | config}.
HEDDLE_API Report check_strategy(const std::string& section, PluginRegistry& plugins,
                                 const std::vector<int>& ranks);

// Name and type of the function that `heddle plugins check` calls in the library of the kits. It adds the
// result of check_plugin() to `report`.
inline constexpr const char* kRunKits = "heddle_run_kits";
using RunKits = void(const std::filesystem::path& file, const KitOptions& options, Report& report);

}  // namespace heddle::kits
