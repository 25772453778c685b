// The homes of the interfaces' vtables: one for all plugins.
#include "heddle/parallel/plan.h"

namespace heddle {

ParallelStage::~ParallelStage() = default;
void ParallelStage::reduce_gradients() {}
double ParallelStage::gradient_divisor() const {
  return 1;
}
std::vector<WholeParameter> ParallelStage::hold_whole() {
  std::vector<WholeParameter> whole;
  for (const Shard& shard : owned()) whole.push_back({shard.name, shard.tensor.detach()});
  return whole;
}
void ParallelStage::release_whole() {}
IStrategy::~IStrategy() = default;
IParallelizer::~IParallelizer() = default;
void IParallelizer::check(Units&, const Sizes&) {}

}  // namespace heddle
