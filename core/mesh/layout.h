// The arithmetic of a mesh: which ranks form a group along an axis. Integers only, nothing is sent.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/config/axes.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::mesh {

// Row-major: rank = ((a0 * s1 + a1) * s2 + a2)..., as in torch.distributed's DeviceMesh. A list of axes is a
// list of their indices, outermost first; an empty list is an axis of size 1.
struct HEDDLE_API Layout {
  std::vector<Axis> axes;

  int index_of(std::string_view name) const;  // -1: it has no such axis
  int world() const;                          // ranks
  int size(std::span<const int> chosen) const;
  int place(std::span<const int> chosen, int rank) const;  // the rank's position along them
  std::vector<int> ranks(std::span<const int> chosen,
                         int rank) const;  // all ranks that differ from it only along them

  // Flattens the axes `from` (neighbours, in the mesh's order) and unfolds them as `to`; the other axes stay.
  // Throws Error{mesh} when the sizes do not fit.
  Layout refold(std::span<const int> from, std::span<const Axis> to) const;
};

// Throws Error{mesh} unless the sizes are positive, the names differ and the product is the world size.
HEDDLE_API Layout lay_out(std::span<const Axis> axes, int world_size);

std::string written(std::span<const Axis> axes);  // "(pp=1, dp=2)"

// Begins the part of a line of a fingerprint that identifies a file by its contents: "file tokenizer.json:
// X".
inline constexpr std::string_view kFilePart = "file ";

// Compares the fingerprints of all ranks, in rank order; each has lines "part: value". host_name: see
// Rendezvous::host_name(); empty for one machine. Throws Error{mesh} naming the parts that differ and where.
HEDDLE_API void compare_fingerprints(std::span<const std::string> texts,
                                     const std::function<std::string(int rank)>& host_name = {});

// A rendezvous of all ranks that compares fingerprints: digests first, texts only where digests differ.
HEDDLE_API void agree(Rendezvous& rendezvous, const std::string& fingerprint);

}  // namespace heddle::mesh
