// Fully sharded data parallelism: the parameters of a unit are adjacent in a flat buffer, of which each rank
// has a part (ZeRO-3, Rajbhandari et al. 2020). heddle's sharding engine gathers, frees and reduces it.
#include "hello.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "heddle/parallel/flat.h"
#include "heddle/sharding/flat_gradients.h"
#include "heddle/sharding/stage.h"
#include "heddle/sharding/transient_storage.h"

namespace hello_plugin {
namespace {

using heddle::Shard;
namespace sharding = heddle::sharding;

// Parameters of a unit with the same dtype that are all trainable or all frozen.
class Bucket final : public sharding::Bucket {
 public:
  Bucket(sharding::Slots slots, std::span<const heddle::Placed> placed, const sharding::Groups& groups)
      : groups_(groups) {
    const at::NoGradGuard no_gradients;
    int64_t elements = 0;
    for (const auto& slot : slots) elements += slot.tensor->numel();
    const int64_t part = (elements + groups.shards - 1) / groups.shards, first = groups.shard * part;
    const bool trains = slots.front().trainable();
    const auto like = slots.front().tensor->options().device(groups.device).requires_grad(false);
    whole_ = at::empty({groups.shards * part}, like);
    mine_ = at::empty({part}, like);
    std::vector<int64_t> begins;
    int64_t end = 0;
    for (auto& slot : slots) {
      const int64_t begin = std::exchange(end, end + slot.tensor->numel());
      const std::vector<int64_t> sizes = slot.tensor->sizes().vec();
      const at::Tensor leaf = whole_.narrow(0, begin, end - begin).view(sizes).variable_data();
      if (!slot.tensor->is_meta()) leaf.copy_(sharding::first_values(*slot.tensor, groups));
      Shard whole = heddle::whole_shard(slot, placed);
      whole.axes.push_back(groups.axes.shards);
      const int64_t from = std::clamp(first, begin, end), to = std::clamp(first + part, begin, end);
      const at::Tensor held = mine_.narrow(0, to > from ? from - first : 0, to - from);
      parameters_.push_back(
          {slot.name, slot.point(leaf),
           heddle::parallel::shards_of_range(whole, sizes, from - begin, to - begin, held, trains)});
      begins.push_back(begin);
    }
    mine_.copy_(whole_.narrow(0, first, part));  // values of the slots
    storage_ = sharding::TransientStorage(whole_);
    storage_.release();
    if (trains) set_gradients(std::make_unique<sharding::FlatGradients>(parameters_, begins, mine_, groups));
  }
  std::vector<sharding::Parameter> parameters() const override { return parameters_; }
  int64_t elements() const override { return whole_.numel(); }
  bool transient() const override { return true; }
  std::unique_ptr<heddle::Work> gather() override {
    storage_.acquire();
    if (groups_.shards > 1) return groups_.gather->all_gather(whole_, mine_);
    whole_.copy_(mine_);
    return nullptr;
  }
  void free() override { storage_.release(); }

 private:
  const sharding::Groups groups_;
  std::vector<sharding::Parameter> parameters_;
  at::Tensor whole_, mine_;  // [ranks * part], [part]
  sharding::TransientStorage storage_;
};

// Returns the properties that all parameters of a bucket share.
auto kind_of(const heddle::ParameterSlot& slot) {
  return std::tuple(slot.tensor->scalar_type(), slot.trainable());
}

}  // namespace

heddle::Needs Hello::needs() const {
  heddle::Needs needs;
  needs.axes = {"pp", "dp", "tp"};
  needs.axes_when_used = {"pp", "tp"};
  needs.refuses = {{"cp", "hello does not support context parallelism"},
                   {"ep", "hello does not support expert parallelism"}};
  return needs;
}

std::unique_ptr<heddle::ParallelStage> Hello::parallelize(heddle::Units units, const heddle::DeviceMesh& mesh,
                                                          std::span<const heddle::Placed> placed) {
  const sharding::Groups groups = sharding::groups_over(mesh, heddle::Reductions(mesh, placed).dense());
  std::vector<std::unique_ptr<sharding::Bucket>> buckets;
  for (const sharding::Slots& fresh : sharding::new_slots(units)) {
    std::map<decltype(kind_of(fresh.front())), sharding::Slots> kinds;
    for (const auto& slot : fresh) kinds[kind_of(slot)].push_back(slot);
    for (const auto& [kind, slots] : kinds)
      buckets.push_back(std::make_unique<Bucket>(slots, placed, groups));
  }
  std::vector<sharding::Reshard> reshard(units.size(), sharding::Reshard::after_forward);
  sharding::Policy policy;
  policy.forward.units = policy.backward.units = config_.prefetch;
  return std::make_unique<sharding::ShardedStage>(
      sharding::Model(std::move(units), std::move(buckets), std::move(reshard), "hello"), policy, mesh,
      groups);
}

}  // namespace hello_plugin
