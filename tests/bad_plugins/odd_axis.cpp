// Bad: requires an axis that no mesh has.
#include "plain.h"

namespace {

class Sideways : public plain::Strategy {
 public:
  using plain::Strategy::Strategy;
  heddle::Needs needs() const override {
    heddle::Needs needs;
    needs.axes = {"sideways"};
    return needs;
  }
};

}  // namespace

HEDDLE_PLUGIN("odd_axis", "0.1.0") {
  plugin.strategy<Sideways>("odd_axis", plain::schema());
}
