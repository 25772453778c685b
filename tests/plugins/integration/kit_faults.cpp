// The test of every fault: the kit with the violated rule refuses the plugin with the detail.
#include "plugins/integration/kit_faults.h"

namespace heddle::tests {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RefusedFault);

TEST_P(RefusedFault, IsRefusedByItsKit) {
  const KitFault& one = GetParam();
  if (!one.always && std::getenv("HEDDLE_ALL_FAULTS") == nullptr)
    GTEST_SKIP() << "HEDDLE_ALL_FAULTS=1 tries it";
  const kits::KitOptions options = one.ranks > 0 ? kit_options({one.ranks}) : kits::KitOptions();
  const kits::Report report = one.plugin == "zero1" ? bad_plugin_report("zero1_" + one.fault, options)
                                                    : fault_report(one.plugin, one.fault, options);
  const kits::Check* kit = nullptr;
  for (const kits::Check& check : report.checks)
    if (check.rule.find(one.sentence) != std::string::npos && (kit == nullptr || kit->passed)) kit = &check;
  ASSERT_NE(kit, nullptr) << report.text();
  EXPECT_FALSE(kit->passed) << report.text();
  EXPECT_THAT(kit->detail, ::testing::HasSubstr(one.detail)) << report.text();
}

}  // namespace heddle::tests
