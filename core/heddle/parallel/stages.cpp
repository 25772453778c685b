// The places of this rank's stages, and the scope in which their parameters are whole.
#include "heddle/parallel/stages.h"

#include <utility>

#include "heddle/parallel/unsharded.h"

namespace heddle {

Stages::Stages(Pipeline pipeline, int rank) : pipeline_(std::move(pipeline)), rank_(rank), indices_() {
  for (int stage = 0; stage < pipeline_.stages(); ++stage)
    if (pipeline_.rank_of_stage[stage] == rank_) indices_.push_back(stage);
}

std::vector<Shard*> Stages::shards() {
  std::vector<Shard*> all;
  for (const auto& stage : stages_)
    for (Shard& shard : stage->owned()) all.push_back(&shard);
  return all;
}

Unsharded::Unsharded(Stages& stages) : stages_(stages) {
  size_t held = 0;
  try {
    for (; held < stages_.size(); ++held)
      for (WholeParameter& parameter : stages_[held]->hold_whole())
        parameters_.push_back(std::move(parameter));
  } catch (...) {
    while (held-- > 0) stages_[held]->release_whole();
    throw;
  }
}

Unsharded::~Unsharded() {
  for (const auto& stage : stages_) stage->release_whole();
}

}  // namespace heddle
