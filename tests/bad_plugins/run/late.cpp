// Bad at run time: passes admission, but throws when constructed with a field that is not the default and
// when a stage is built.
#include <stdexcept>

#include "bad_plugins/plain.h"

namespace {

class Late : public plain::Strategy {
 public:
  explicit Late(plain::Config config) : plain::Strategy(config) {
    if (config.prefetch != 2) throw std::out_of_range("prefetch table");
  }
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units, const heddle::DeviceMesh&,
                                                     std::span<const heddle::Placed>) override {
    throw std::runtime_error("no workspace");
  }
};

}  // namespace

HEDDLE_PLUGIN("late", "0.1.0") {
  plugin.strategy<Late>("late", plain::schema());
}
