// A model with its weights on one rank.
#include "lib/run/generate/loaded_model.h"

#include <utility>

#include "core/parallel/single.h"
#include "heddle/mesh/call.h"
#include "heddle/parallel/build.h"
#include "heddle/parallel/plan.h"

namespace heddle {
namespace {

Stages load(const PreparedModel& model, Units units, const DeviceMesh& mesh) {
  Plan plan;
  plan.strategy = parallel::make_single();
  return parallel::build(std::move(units), plan, mesh, model.source, 0);
}

Units causal(Units units) {
  refuse_not_causal(units);
  return units;
}

}  // namespace

LoadedModel::LoadedModel(const PreparedModel& model) : LoadedModel(model, causal(model.make())) {}

LoadedModel::LoadedModel(const PreparedModel& model, Units units)
    : rendezvous_(std::make_unique<AloneRendezvous>(Log::to_stderr(0))),
      why_no_cache_(KvCache::why_none(units)),
      cache_(why_no_cache_.empty() ? std::make_unique<KvCache>(units) : nullptr),
      mesh_(mesh::build({}, *rendezvous_, "generate: one rank")),
      stages_(load(model, std::move(units), mesh_)) {}

Logits LoadedModel::logits() {
  return [this](const Batch& batch) { return stages_.front()->forward({}, batch).front(); };
}

}  // namespace heddle
