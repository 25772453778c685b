// Bad later: passes the door, and throws when a run makes it with a field that is not the default.
#include <stdexcept>

#include "plain.h"

namespace {

class Late : public plain::Strategy {
 public:
  explicit Late(plain::Config config) : plain::Strategy(config) {
    if (config.prefetch != 2) throw std::out_of_range("prefetch table");
  }
};

}  // namespace

HEDDLE_PLUGIN("late", "0.1.0") {
  plugin.strategy<Late>("late", plain::schema());
}
