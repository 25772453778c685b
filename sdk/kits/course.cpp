// The ranks of a course, and their results.
#include "course.h"

#include <chrono>

#include "heddle/transport/threads.h"
#include "rank_run.h"
#include "runs/hostile.h"
#include "watch.h"

namespace heddle::kits {

Outcome train(const Subject& subject, const Course& course) {
  Shared shared(course);
  Watch* const watch = Watch::current();
  const auto faults = std::make_shared<WorkFaults>();
  ThreadWorld world(course.world(), watch == nullptr ? std::chrono::seconds(60) : watch->patience());
  world.run([&](Rendezvous& host) {
    const Watch::Rank here(watch, host.rank());
    LateRendezvous rendezvous(host, faults);
    RankRun(subject, course, rendezvous, shared).run();
  });
  faults->check();
  Outcome out{shared.losses, shared.norms, {}, shared.parameters.whole("the parameter"), shared.sides};
  for (const Gathered& gradients : shared.gradients)
    out.gradients.push_back(gradients.whole("the gradient of"));
  if (course.to != nullptr)
    *course.to = {out.parameters, shared.averages.whole("the state of"), shared.squares.whole("the state of"),
                  shared.steps.whole("the state of")};
  return out;
}

}  // namespace heddle::kits
