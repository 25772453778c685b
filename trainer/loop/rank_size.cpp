// A dry mesh on meta tensors runs the strategy.
#include "trainer/loop/rank_size.h"

#include "heddle/mesh/dry.h"
#include "trainer/models/freeze.h"

namespace heddle {
namespace {

class MetaRendezvous : public DryRendezvous {
 public:
  using DryRendezvous::DryRendezvous;
  c10::Device device() const override { return at::kMeta; }
};

// The ranks between two neighbours on the axis pp.
int stride_of_pp(const Setup& setup) {
  int stride = setup.sizes.world;
  for (const Axis& axis : setup.axes) {
    stride /= axis.size;
    if (axis.name == kPipelineAxis) return stride;
  }
  return 0;
}

}  // namespace

ModelSize size_on_rank(const Plan& plan, const Setup& setup, const JobModel& model, const Recipe& recipe) {
  const auto options = at::TensorOptions().device(at::kMeta).dtype(model.dtype);
  const ParameterSource nothing = [](const Shard&) { return true; };
  ModelSize most;
  for (int stage = 0; stage < setup.sizes.pp; ++stage) {
    Units units = model.spec->make_units(options);
    if (recipe.freeze) freeze(units, *recipe.freeze);
    const WholeModel whole = whole_model(units);
    MetaRendezvous meeting(stage * stride_of_pp(setup), setup.sizes.world);
    const DeviceMesh mesh = mesh::build(setup.axes, meeting, "", setup.views, setup.axis_table);
    Stages stages = parallel::build(std::move(units), plan, mesh, nothing, 0);
    const ModelSize size = size_of(whole, stages, recipe.optimizer.master_weights, recipe.max_norm);
    if (size.held + size.optimizer >= most.held + most.optimizer) most = size;
  }
  return most;
}

}  // namespace heddle
