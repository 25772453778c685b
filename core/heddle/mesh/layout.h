// The arithmetic of a mesh: which ranks stand together on an axis. Integers only, nothing is sent.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/sizes.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::mesh {

// Row-major: rank = ((a0 * s1 + a1) * s2 + a2)..., as in torch.distributed's DeviceMesh. A name stands for a
// list of own axes, outermost first; an empty list is an axis of size 1.
struct HEDDLE_API Layout {
  std::vector<Axis> axes;

  // The own axes behind a name. Throws Error{mesh} on a name that no mesh has.
  std::vector<int> find(std::string_view name) const;

  int size(std::span<const int> chosen) const;
  int place(std::span<const int> chosen, int rank) const;               // the rank's position along them
  std::vector<int> ranks(std::span<const int> chosen, int rank) const;  // all that differ from it only there

  // Flattens the axes `from` (neighbours, in the mesh's order; those it lacks are skipped) and unfolds them
  // as `to`; the other axes stay. Throws Error{mesh} when the sizes do not fit.
  Layout refold(std::span<const std::string_view> from, std::span<const Axis> to) const;
};

// Throws Error{mesh} unless the sizes are positive, the names differ and the product is the world size.
HEDDLE_API Layout lay_out(std::span<const Axis> axes, int world_size);

// texts: each rank's fingerprint, lines "part: value". Throws Error{mesh} naming the parts that differ and
// where.
HEDDLE_API void compare_fingerprints(std::span<const std::string> texts);

// A meeting of all ranks that compares them: digests first, the texts only where digests differ.
void agree(Rendezvous& meeting, const std::string& fingerprint);

}  // namespace heddle::mesh
