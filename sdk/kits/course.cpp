// The ranks of a course, and their results.
#include "course.h"

#include "rank_run.h"

namespace heddle::kits {

Outcome train(const Subject& subject, const Course& course) {
  Shared shared(course);
  run_ranks(course.world(), course.device,
            [&](Rendezvous& rendezvous) { RankRun(subject, course, rendezvous, shared).run(); });
  Outcome out{shared.losses, shared.norms, {}, shared.parameters.whole("the parameter"), shared.sides};
  for (const Gathered& gradients : shared.gradients)
    out.gradients.push_back(gradients.whole("the gradient of"));
  if (course.to != nullptr)
    *course.to = {out.parameters, shared.averages.whole("the state of"), shared.squares.whole("the state of"),
                  shared.steps.whole("the state of")};
  return out;
}

}  // namespace heddle::kits
