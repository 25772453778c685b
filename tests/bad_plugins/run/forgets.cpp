// Bad at run time: passes admission but never reduces gradients over the ranks.
#include "bad_plugins/plain.h"
#include "core/parallel/single.h"

namespace {

class Forgets : public plain::Strategy {
 public:
  using plain::Strategy::Strategy;
  std::unique_ptr<heddle::ParallelStage> parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                     std::span<const heddle::Placed> placed) override {
    return heddle::parallel::make_single()->parallelize(std::move(units), mesh, placed);
  }
};

}  // namespace

HEDDLE_PLUGIN("forgets", "0.1.0") {
  plugin.strategy<Forgets>("forgets", plain::schema());
}
