// Named axes to groups of ranks.
#include "heddle/mesh/device_mesh.h"

#include <map>

#include "core/mesh/layout.h"
#include "core/mesh/overlap.h"
#include "core/mesh/views.h"

namespace heddle {

struct DeviceMesh::Shared {
  mesh::Views views;
  Rendezvous* rendezvous = nullptr;
  std::unique_ptr<Overlap> overlap;                                // outlives the groups
  std::map<std::vector<int>, std::unique_ptr<Communicator>> made;  // by the ranks
  std::map<std::string, Communicator*, std::less<>> groups;        // by the names asked for

  std::unique_ptr<Communicator> make_group(const std::string& axis, std::span<const int> members) const {
    auto group = rendezvous->group(axis, members);
    return overlap ? mesh::overlapped(std::move(group), *overlap) : std::move(group);
  }
};

DeviceMesh::DeviceMesh(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

std::span<const Axis> DeviceMesh::axes() const {
  return axes(mesh::kDense);
}

std::span<const Axis> DeviceMesh::axes(std::string_view view) const {
  return shared_->views.layout(view).axes;
}

std::vector<std::string> DeviceMesh::views() const {
  std::vector<std::string> names;
  for (const auto& [name, layout] : shared_->views.all()) names.push_back(name);
  return names;
}

const AxisTable& DeviceMesh::table() const {
  return shared_->views.table();
}

bool DeviceMesh::has(std::string_view axis) const {
  return shared_->views.has(axis);
}

int DeviceMesh::size(std::string_view axis) const {
  const auto found = shared_->views.find(axis);
  return found.layout->size(found.axes);
}

int DeviceMesh::rank(std::string_view axis) const {
  const auto found = shared_->views.find(axis);
  return found.layout->place(found.axes, rendezvous().rank());
}

std::vector<int> DeviceMesh::ranks(std::string_view axis) const {
  const auto found = shared_->views.find(axis);
  return found.layout->ranks(found.axes, rendezvous().rank());
}

Communicator& DeviceMesh::group(std::string_view axis) const {
  const auto known = shared_->groups.find(axis);
  if (known != shared_->groups.end()) return *known->second;
  const std::vector<int> members = ranks(axis);
  auto& communicator = shared_->made[members];
  if (!communicator) communicator = shared_->make_group(std::string(axis), members);
  shared_->groups.emplace(axis, communicator.get());
  return *communicator;
}

std::string DeviceMesh::axes_error(std::span<const std::string> axes) const {
  return shared_->views.axes_error(axes);
}

std::string DeviceMesh::view_of(std::span<const std::string> axes) const {
  const int view = shared_->views.common(axes);
  return view < 0 ? "" : shared_->views.all()[view].first;
}

std::vector<std::string> DeviceMesh::parts_of(std::span<const std::string> axes) const {
  std::vector<std::string> names;
  const int view = shared_->views.common(axes);
  if (view < 0) return names;
  for (const int axis : shared_->views.parts(view, axes))
    names.push_back(shared_->views.all()[view].second.axes[axis].name);
  return names;
}

Rendezvous& DeviceMesh::rendezvous() const {
  return *shared_->rendezvous;
}

c10::Device DeviceMesh::device() const {
  return rendezvous().device();
}

const Log& DeviceMesh::log() const {
  return rendezvous().log();
}

Overlap* DeviceMesh::overlap() const {
  return shared_->overlap.get();
}

namespace mesh {

DeviceMesh build(std::span<const Axis> axes, Rendezvous& rendezvous, const std::string& fingerprint,
                 std::span<const View> views, const AxisTable& table) {
  std::string lines = fingerprint + "\nmesh: " + written(axes);
  for (const View& view : views) lines += "\nview " + view.name + ": " + written(view.axes);
  agree(rendezvous, lines);
  auto shared = std::make_shared<DeviceMesh::Shared>();
  shared->views = Views(axes, rendezvous.world_size(), views, table);
  shared->rendezvous = &rendezvous;
  const DeviceMesh mesh(shared);
  if (mesh.has(kPipelineAxis) && mesh.size(kPipelineAxis) > 1 && !mesh.device().is_meta())
    shared->overlap = std::make_unique<Overlap>(mesh.device());
  return mesh;
}

}  // namespace mesh
}  // namespace heddle
