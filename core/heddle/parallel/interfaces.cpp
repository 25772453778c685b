// The homes of the interfaces' vtables: one for all plugins.
#include "heddle/parallel/plan.h"

namespace heddle {

ParallelStage::~ParallelStage() = default;
void ParallelStage::reduce_gradients() {}
IStrategy::~IStrategy() = default;
IParallelizer::~IParallelizer() = default;
void IParallelizer::check(Units&, const Sizes&) {}

}  // namespace heddle
