// Bad: a strategy that declares an axis. Only the parallelizer that splits along an axis may declare it.
#include "plain.h"

namespace {

class Declares : public plain::Strategy {
 public:
  using plain::Strategy::Strategy;
  heddle::Needs needs() const override {
    heddle::Needs needs = plain::Strategy::needs();
    needs.new_views = {{"acme", {"dp"}, "acme_shard"}};
    return needs;
  }
};

}  // namespace

HEDDLE_PLUGIN("axes_of_strategy", "0.1.0", "strategy declares") {
  plugin.strategy<Declares>("declares", plain::schema());
}
