// Tests that run only with `scripts/test --all`: they wait for timeouts, or repeat on every topology what
// other tests show on a few.
#pragma once

namespace heddle::tests {

// Names such tests by --gtest_filter patterns, joined by ':'.
struct WithAll {
  explicit WithAll(const char* patterns);
};

}  // namespace heddle::tests

#define HEDDLE_JOINED(first, second) first##second
#define HEDDLE_NAMED(number) HEDDLE_JOINED(heddle_with_all_, number)
// Usage, in the file of the tests: HEDDLE_WITH_ALL("Suite.*:Instances/OtherSuite.Case*");
#define HEDDLE_WITH_ALL(patterns) static const ::heddle::tests::WithAll HEDDLE_NAMED(__COUNTER__)(patterns)
