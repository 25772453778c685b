// The conformance kits: run by `heddle plugins check` on a plugin's file, and by a plugin's own tests.
// A program that calls them links Heddle::kits.
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

// One rule and its result.
struct Check {
  std::string rule;  // "strategy 'acme' on 2 ranks: owned(): a tied parameter once"
  bool passed = false;
  std::string detail;   // the observation, or the fault
  bool ran = true;      // false: it does not apply to this plugin or cannot run here; `detail` is the reason
  bool trains = false;  // it computes with what the plugin offers, on some ranks
  // What it checks: "strategy 'acme'", of a model with the model_type. Empty: the file.
  std::string offer = {};

  // A line: "ok    RULE: DETAIL", "FAIL  ..." or "--    RULE: not run: DETAIL".
  std::string text() const {
    const std::string word = !ran ? "--    " : passed ? "ok    " : "FAIL  ";
    return word + rule + (detail.empty() ? "" : (ran ? ": " : ": not run: ") + detail) + "\n";
  }
};

struct Report {
  std::vector<Check> checks;

  // Every check that ran passed, and there is at least one.
  bool passed() const {
    for (const Check& check : checks)
      if (!check.passed) return false;
    return !checks.empty();
  }
  // The offers with which no kit computed: it is not known whether they are right. Each offer of a kind that
  // trains has a kit that `trains`, run or not.
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
  std::string text() const {  // a line for each check
    std::string out;
    for (const Check& check : checks) out += check.text();
    return out;
  }
};

inline constexpr const char* kFieldsOption = "--fields";  // where KitOptions::fields are wrong

// A device on which the kits train, beside the CPU.
struct KitDevice {
  std::string name;            // for messages: "simulated"
  std::filesystem::path file;  // the plugin that offers it
  int ranks = 1;               // how many threads of a process may each have one
};

struct KitOptions {
  // Data-parallel ranks on which strategies and parallelizers train; empty: nothing is trained.
  std::vector<int> ranks = {1, 2, 3};
  // YAML of a map, "{bucket_mb: 1}": fields of what the plugin offers in place of their defaults; each offer
  // gets those that it has. The kits compare in float32: unless given, they set `mp_policy` of a strategy to
  // it, and fields with "bucket" in their name to the least value of their range.
  std::string fields = "{}";
  std::function<void(const std::string& rule)> begins = {};  // called before each check
  std::function<void(const Check& check)> ended = {};        // called after each check
  // Where models are trained, to be compared with the CPU's numbers; none: on the CPU. Kits that compute on
  // the CPU alone are then not run, and say so. Nothing of LibTorch is used before.
  std::optional<KitDevice> device = {};
  // Seconds that one kit may take. A kit that takes longer has failed and is the last one; the threads of its
  // ranks stay behind.
  double time_limit = 60;
};

// Runs every kit for all that the file offers, in this process, with ranks as threads. A plugin that ends
// the process ends it here too; `heddle plugins check` runs this in a process of its own. Throws
// Error{config} at kFieldsOption for `fields` that are no map, and for a key that no offer has.
HEDDLE_API Report check_plugin(const std::filesystem::path& file, const KitOptions& options = {});

// The kits of one strategy, with a section `distributed:` as YAML: "strategy: acme, bucket_mb: 1". Throws
// Error{plugin_missing | config}.
HEDDLE_API Report check_strategy(const std::string& section, PluginRegistry& plugins,
                                 const std::vector<int>& ranks);

// What `heddle plugins check` calls by its name, in the library that it opens: adds check_plugin() to
// `report`.
inline constexpr const char* kRunKits = "heddle_run_kits";
using RunKits = void(const std::filesystem::path& file, const KitOptions& options, Report& report);

}  // namespace heddle::kits
