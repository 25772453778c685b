// Collectives in flight when an exception is thrown.
#include "plugins/context/flight.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace heddle::tests {
namespace {

struct CountedWork : Work {
  explicit CountedWork(int& waits, bool lost = false) : waits_(waits), lost_(lost) {}
  void wait() override {
    ++waits_;
    if (lost_) throw std::runtime_error("a rank is lost");
  }
  int& waits_;
  bool lost_;
};

TEST(ContextFlight, IsWaitedForOnceAfterAnException) {
  int waits = 0;
  {
    context::Flight flight(std::make_unique<CountedWork>(waits));
    flight.wait();
    EXPECT_EQ(waits, 1);
  }
  EXPECT_EQ(waits, 1);
  for (const bool lost : {false, true}) {
    waits = 0;
    try {
      context::Flight flight;
      flight = context::Flight(std::make_unique<CountedWork>(waits, lost));
      throw std::invalid_argument("of the product");
    } catch (const std::invalid_argument&) {
    }
    EXPECT_EQ(waits, 1);
  }
}

}  // namespace
}  // namespace heddle::tests
