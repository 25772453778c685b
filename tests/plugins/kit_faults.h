// Plugins of tests/bad_plugins with one fault each, and the kit that refuses it by the sentence that it
// breaks.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "heddle/testing/conformance.h"

namespace heddle::tests {

struct KitFault {
  std::string fault, sentence, detail;
};

inline kits::Report bad_plugin_report(const std::string& name, const kits::KitOptions& options = {}) {
  return kits::check_plugin(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_" + name + ".so", options);
}

// Of the faulty plugin of that kind.
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

template <class Fault>
void expect_refused(const kits::Report& report, const Fault& one) {
  const kits::Check* kit = nullptr;
  for (const kits::Check& check : report.checks)
    if (check.rule.find(one.sentence) != std::string::npos && (kit == nullptr || kit->passed)) kit = &check;
  ASSERT_NE(kit, nullptr) << report.text();
  EXPECT_FALSE(kit->passed) << report.text();
  EXPECT_THAT(kit->detail, ::testing::HasSubstr(one.detail)) << report.text();
}

}  // namespace heddle::tests
