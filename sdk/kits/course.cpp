// The ranks of a course, and their results.
#include "course.h"

#include <chrono>

#include "heddle/transport/threads.h"
#include "rank_run.h"

namespace heddle::kits {

Outcome train(const Subject& subject, const Course& course) {
  Shared shared(course);
  ThreadWorld world(course.world(), std::chrono::seconds(60));
  world.run([&](Rendezvous& meeting) { RankRun(subject, course, meeting, shared).run(); });
  Outcome out{shared.losses, shared.norms, {}, shared.parameters.whole("the parameter"), shared.sides};
  for (const Gathered& gradients : shared.gradients)
    out.gradients.push_back(gradients.whole("the gradient of"));
  if (course.to != nullptr)
    *course.to = {out.parameters, shared.averages.whole("the state of"), shared.squares.whole("the state of"),
                  shared.steps.whole("the state of")};
  return out;
}

}  // namespace heddle::kits
