// The places of this rank's stages.
#include "heddle/parallel/stages.h"

#include <utility>

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

}  // namespace heddle
