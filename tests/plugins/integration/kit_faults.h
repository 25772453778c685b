// Plugins of tests/bad_plugins with one fault each, and the kit that refuses each with the rule that it
// violates.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "heddle/testing/conformance.h"

namespace heddle::tests {

struct KitFault {
  std::string fault, sentence, detail;
  bool always = false;  // else only with HEDDLE_ALL_FAULTS=1
  int ranks = -1;       // those of the table; 0: as many as the kits use
  std::string plugin = {};
};

// When the faults of a plugin are tested: always, or as each row sets.
enum class Tried { always, as_said };
inline std::vector<KitFault> faults_of(const std::string& plugin, Tried tried, std::vector<KitFault> rows,
                                       int ranks = 2) {
  for (KitFault& row : rows) {
    row.plugin = plugin, row.always = row.always || tried == Tried::always;
    if (row.ranks < 0) row.ranks = ranks;
  }
  return rows;
}

inline kits::Report bad_plugin_report(const std::string& name, const kits::KitOptions& options = {}) {
  return kits::check_plugin(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_" + name + ".so", options);
}

// Returns the report for a faulty plugin of this kind.
inline kits::Report fault_report(const std::string& kind, const std::string& fault,
                                 const kits::KitOptions& options = {}) {
  setenv("HEDDLE_FAULT", fault.c_str(), 1);
  kits::Report report = bad_plugin_report("faulty_" + kind, options);
  unsetenv("HEDDLE_FAULT");
  return report;
}

inline kits::KitOptions kit_options(std::vector<int> ranks, double time_limit = 60) {
  kits::KitOptions options;
  options.ranks = std::move(ranks);
  options.time_limit = time_limit;
  return options;
}

// The plugin "zero1" is built once per fault. Other plugins read their fault when they are opened.
class RefusedFault : public ::testing::TestWithParam<KitFault> {};
inline constexpr auto name_of_fault = [](const auto& info) {
  return info.param.fault + "_" + std::to_string(info.index);
};

}  // namespace heddle::tests
