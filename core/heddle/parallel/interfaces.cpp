// The homes of the interfaces' vtables: one for all plugins.
#include <optional>
#include <string>
#include <vector>

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
std::string IParallelizer::name() const {
  return "a parallelizer of the program";
}
void IParallelizer::check(Units&, const Sizes&) {}
std::optional<int> IParallelizer::transform_order() const {
  return std::nullopt;
}
void IParallelizer::transform(Batch&, const DeviceMesh&) {}
std::vector<SideOutput*> IParallelizer::side_outputs() {
  return {};
}
void IParallelizer::after_update(const Updated&, const DeviceMesh&) {}

}  // namespace heddle
