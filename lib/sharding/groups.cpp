// From a reduction to communicators.
#include "heddle/sharding/bucket.h"

#include <utility>

namespace heddle::sharding {

Groups groups_over(const DeviceMesh& mesh, Reduction axes) {
  Groups groups;
  groups.shards = mesh.size(axes.shards);
  groups.device = mesh.device();
  if (groups.shards > 1) {
    groups.shard = mesh.rank(axes.shards);
    groups.gather = &mesh.group(axes.shards);
    groups.reduce = mesh.rendezvous().group(axes.shards, mesh.ranks(axes.shards));
    groups.all = groups.gather;
  }
  if (mesh.size(axes.copies) > 1) {
    groups.replicas = mesh.size(axes.copies);
    groups.replica = mesh.rank(axes.copies);
    groups.across = &mesh.group(axes.copies);
    groups.all = groups.shards == 1 ? groups.across : &mesh.group(axes.all);
  }
  groups.axes = std::move(axes);
  return groups;
}

at::Tensor first_values(const at::Tensor& tensor, const Groups& groups) {
  if (tensor.is_meta() || groups.all == nullptr) return tensor;
  at::Tensor values = tensor.detach().clone(at::MemoryFormat::Contiguous);
  groups.all->broadcast(values, 0)->wait();
  return values;
}

}  // namespace heddle::sharding
