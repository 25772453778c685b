// Reading boxes out of the boxes that were saved, whatever the ranks were then.
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/checksum.h"
#include "heddle/checkpoint/sharded.h"

namespace heddle::checkpoint {
namespace {

// What two boxes of one tensor have in common; size 0 along some dim where they have nothing.
Box overlap(const Box& a, const Box& b) {
  Box out;
  for (size_t dim = 0; dim < a.size.size(); ++dim) {
    const int64_t begin = std::max(a.offset[dim], b.offset[dim]);
    const int64_t end = std::min(a.offset[dim] + a.size[dim], b.offset[dim] + b.size[dim]);
    out.offset.push_back(begin);
    out.size.push_back(std::max<int64_t>(0, end - begin));
  }
  return out;
}

Box seen_from(const Box& box, const std::vector<int64_t>& offset) {
  Box out = box;
  for (size_t dim = 0; dim < offset.size(); ++dim) out.offset[dim] -= offset[dim];
  return out;
}

at::Tensor corner(at::Tensor view, const Box& box) {
  for (size_t dim = 0; dim < box.size.size(); ++dim)
    view = view.narrow(static_cast<int64_t>(dim), box.offset[dim], box.size[dim]);
  return view;
}

}  // namespace

ShardedReader::ShardedReader(std::filesystem::path directory)
    : directory_(std::move(directory)), manifest_(read_manifest(directory_ / kManifest)) {}

void ShardedReader::read(const Part& part) {
  if (part.tensor.numel() == 0) return;
  const auto found = manifest_.tensors.find(part.name);
  if (found == manifest_.tensors.end())
    throw Error(ErrorCode::input, (directory_ / kManifest).string(),
                "holds no tensor " + text::quoted(part.name), "is this the checkpoint of another model?");
  const SavedTensor& tensor = found->second;
  if (tensor.shape != part.shape)
    throw Error(ErrorCode::input, (directory_ / kManifest).string(),
                "tensor " + text::quoted(part.name) + " has the shape " + written(tensor.shape) +
                    ", this run needs " + written(part.shape),
                "is this the checkpoint of another model?");
  const Box wanted{part.offset, part.tensor.sizes().vec()};
  int64_t filled = 0;
  for (const SavedBox& saved : tensor.boxes) {
    const Box common = overlap(wanted, saved.box);
    if (common.numel() == 0) continue;
    const Box inside = seen_from(common, saved.box.offset);
    check(tensor, saved, inside, part.name);
    file_of(tensor, saved, part.name)
        .read(saved.key, inside.offset, corner(part.tensor.detach(), seen_from(common, part.offset)));
    filled += common.numel();
  }
  if (filled != wanted.numel())
    throw Error(ErrorCode::input, (directory_ / kManifest).string(),
                "the boxes of tensor " + text::quoted(part.name) + " do not make it whole");
}

// The file of a box, whose header must say what the manifest says: files may have been swapped.
const SafetensorsFile& ShardedReader::file_of(const SavedTensor& tensor, const SavedBox& saved,
                                              const std::string& name) {
  auto found = files_.find(saved.file);
  if (found == files_.end())
    found = files_.emplace(saved.file, SafetensorsFile(directory_ / saved.file)).first;
  const auto stored = found->second.tensors().find(saved.key);
  if (stored == found->second.tensors().end() || stored->second.shape != saved.box.size ||
      stored->second.dtype != tensor.dtype)
    throw Error(ErrorCode::input, (directory_ / saved.file).string(),
                "tensor " + text::quoted(name) + ": the file does not hold the box that " + kManifest +
                    " says it holds",
                "were files of a checkpoint swapped? copy it again, or go on from another");
  return found->second;
}

// Compares the stretches of bytes that a box inside a saved box lies in, each once.
void ShardedReader::check(const SavedTensor& tensor, const SavedBox& saved, const Box& inside,
                          const std::string& name) {
  const std::string_view bytes = file_of(tensor, saved, name).bytes(saved.key);
  std::vector<char>& done = checked_[&saved].stretches;
  done.resize(saved.sums.size());
  const uint64_t item = c10::elementSize(tensor.dtype);
  for_each_run(inside, saved.box.size, [&](int64_t first, int64_t count) {
    const uint64_t begin = static_cast<uint64_t>(first) * item,
                   end = begin + static_cast<uint64_t>(count) * item;
    for (uint64_t at = begin / Manifest::kStretch; at * Manifest::kStretch < end; ++at) {
      const bool known = at < done.size();
      if (known && done[at]) continue;
      const std::string_view stretch = bytes.substr(at * Manifest::kStretch, Manifest::kStretch);
      if (!known || checksum(stretch) != saved.sums[at])
        throw Error(ErrorCode::input, (directory_ / saved.file).string(),
                    "tensor " + text::quoted(name) + ": the bytes are not those that were saved",
                    "the file was changed or damaged; copy it again, or go on from another checkpoint");
      done[at] = 1;
    }
  });
}

}  // namespace heddle::checkpoint
