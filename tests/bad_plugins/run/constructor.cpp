// Bad: the strategy does work in its constructor, which throws.
#include <stdexcept>

#include "bad_plugins/plain.h"

namespace {

class Eager : public plain::Strategy {
 public:
  explicit Eager(plain::Config config) : plain::Strategy(config) {
    throw std::logic_error("no process group yet");
  }
};

}  // namespace

HEDDLE_PLUGIN("constructor", "0.1.0") {
  plugin.strategy<Eager>("constructor", plain::schema());
}
