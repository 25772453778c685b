// Named axes to groups of ranks: own axes, derived ones, and those that a mesh lacks.
#include "heddle/mesh/device_mesh.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/mesh/layout.h"

namespace heddle {

// The communicators are shared by a mesh and the meshes refolded from it.
struct GroupPool {
  Rendezvous* meeting = nullptr;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> made;  // by the ranks
};

struct DeviceMesh::Shared {
  mesh::Layout layout;
  std::shared_ptr<GroupPool> pool;
  std::map<std::string, Communicator*, std::less<>> groups;  // by the names asked for
};

DeviceMesh::DeviceMesh(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

std::span<const Axis> DeviceMesh::axes() const {
  return shared_->layout.axes;
}

int DeviceMesh::size(std::string_view axis) const {
  return shared_->layout.size(shared_->layout.find(axis));
}

int DeviceMesh::rank(std::string_view axis) const {
  return shared_->layout.place(shared_->layout.find(axis), meeting().rank());
}

std::vector<int> DeviceMesh::ranks(std::string_view axis) const {
  return shared_->layout.ranks(shared_->layout.find(axis), meeting().rank());
}

Communicator& DeviceMesh::group(std::string_view axis) const {
  const auto known = shared_->groups.find(axis);
  if (known != shared_->groups.end()) return *known->second;
  const std::vector<int> members = ranks(axis);
  auto& communicator = shared_->pool->made[members];
  if (!communicator) communicator = meeting().group(std::string(axis), members);
  shared_->groups.emplace(axis, communicator.get());
  return *communicator;
}

DeviceMesh DeviceMesh::refold(std::span<const std::string_view> from, std::span<const Axis> to) const {
  auto shared = std::make_shared<Shared>();
  shared->layout = shared_->layout.refold(from, to);
  shared->pool = shared_->pool;
  return DeviceMesh(std::move(shared));
}

Rendezvous& DeviceMesh::meeting() const {
  return *shared_->pool->meeting;
}

c10::Device DeviceMesh::device() const {
  return meeting().device();
}

const Log& DeviceMesh::log() const {
  return meeting().log();
}

namespace mesh {

DeviceMesh build(std::span<const Axis> axes, Rendezvous& meeting, const std::string& fingerprint) {
  agree(meeting, fingerprint);
  auto shared = std::make_shared<DeviceMesh::Shared>();
  shared->layout = lay_out(axes, meeting.world_size());
  shared->pool = std::make_shared<GroupPool>();
  shared->pool->meeting = &meeting;
  return DeviceMesh(std::move(shared));
}

}  // namespace mesh
}  // namespace heddle
