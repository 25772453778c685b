// The strategy and the schedule "single", offers like any other.
#include "core/plugin/builtin.h"

#include "core/parallel/single.h"
#include "core/schedule/single.h"

namespace heddle::plugin {
namespace {

struct NoFields {};

OfferedStrategy single() {
  OfferedStrategy offered;
  offered.name = "single";
  offered.resolve = [](const Node& section) {
    ConfigSchema<NoFields>().read(section);
    return Resolved{Node::map({}), {}};
  };
  offered.needs = parallel::make_single()->needs();
  offered.make = [](const Node&) { return parallel::make_single(); };
  return offered;
}

OfferedSchedule single_schedule() {
  OfferedSchedule offered;
  offered.name = "single";
  offered.make = [] { return schedule::make_single(); };
  return offered;
}

}  // namespace

std::vector<OfferedThing> offered_by_engine() {
  Offer offer;
  offer.add(single());
  offer.add(single_schedule());
  return offer.things();
}

}  // namespace heddle::plugin
