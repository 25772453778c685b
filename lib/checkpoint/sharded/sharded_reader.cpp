// Reads boxes from the saved boxes, independent of the ranks that saved them.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/checksum.h"
#include "lib/checkpoint/sharded/placements.h"

namespace heddle::checkpoint {
namespace {

constexpr const char* kIfDamaged =
    "the file was changed or damaged; copy it again, or resume from another checkpoint";

// The intersection of two boxes of one tensor; size 0 along some dim if it is empty.
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

// The size of one read: it stays in a core's cache while it is summed and copied.
constexpr uint64_t kPiece = 256 * 1024;  // bytes
static_assert(Manifest::kStretch % kPiece == 0 && kPiece % Checksum::kBlock == 0);

// Reads ranges of one saved box through a buffer and compares them with their checksums.
class Stretches {
 public:
  Stretches(const SafetensorsFile& file, const SavedBox& saved, uint64_t bytes, const at::Tensor& piece)
      : file_(file), saved_(saved), bytes_(bytes), piece_(static_cast<char*>(piece.mutable_data_ptr())) {}

  uint64_t end_of(uint64_t index) const { return std::min((index + 1) * Manifest::kStretch, bytes_); }

  // False if the bytes were changed since the save.
  bool read(uint64_t index, char* out) {
    if (index >= saved_.sums.size()) return false;
    Checksum sum;
    for (uint64_t at = index * Manifest::kStretch; at < end_of(index); at += kPiece) {
      const std::span<char> bytes(piece_, std::min(kPiece, end_of(index) - at));
      file_.read_bytes(saved_.key, at, bytes);
      sum.add_copying({bytes.data(), bytes.size()}, out);
      out += bytes.size();
    }
    return sum.digits() == saved_.sums[index];
  }

 private:
  const SafetensorsFile& file_;
  const SavedBox& saved_;
  const uint64_t bytes_;
  char* const piece_;
};

}  // namespace

struct ShardedReader::Shard {
  SafetensorsFile file;
  std::map<std::string, Placement> places;  // by key; empty if the file has no notes
};

ShardedReader::~ShardedReader() = default;
ShardedReader::ShardedReader(ShardedReader&&) noexcept = default;

ShardedReader::ShardedReader(std::filesystem::path directory)
    : directory_(std::move(directory)),
      manifest_(read_manifest(directory_ / kManifest)),
      piece_(at::empty({kPiece}, at::kByte)) {}

void ShardedReader::read(const Part& part) {
  if (part.tensor.numel() == 0) return;
  const auto found = manifest_.tensors.find(part.name);
  if (found == manifest_.tensors.end())
    throw Error(
        ErrorCode::input, (directory_ / kManifest).string(), "holds no tensor " + text::quoted(part.name),
        "is this the checkpoint of another model, or of a run whose freeze_config or adapters were others?");
  const SavedTensor& tensor = found->second;
  if (tensor.shape != part.shape)
    throw Error(ErrorCode::input, (directory_ / kManifest).string(),
                "tensor " + text::quoted(part.name) + " has the shape " + written(tensor.shape) +
                    ", this run needs " + written(part.shape),
                "is this the checkpoint of another model?");
  if (part.tensor.is_meta()) return;
  const Box wanted{part.offset, part.tensor.sizes().vec()};
  const at::Tensor out = part.tensor.detach();
  int64_t filled = 0;
  for (const SavedBox& saved : tensor.boxes) {
    const Box common = overlap(wanted, saved.box);
    if (common.numel() == 0) continue;
    const at::Tensor target = corner(out, seen_from(common, part.offset));
    const bool direct = target.is_cpu() && target.is_contiguous() && target.scalar_type() == tensor.dtype;
    const at::Tensor plain = direct ? target : at::empty(common.size, at::TensorOptions(tensor.dtype));
    fill(plain, seen_from(common, saved.box.offset), part.name, tensor, saved);
    if (!direct) target.copy_(plain);
    filled += common.numel();
  }
  if (filled != wanted.numel())
    throw Error(ErrorCode::input, (directory_ / kManifest).string(),
                "the boxes of tensor " + text::quoted(part.name) + " do not make it whole");
}

// The file of a box; its header must agree with the manifest, because files may have been swapped.
const ShardedReader::Shard& ShardedReader::shard_of(const std::string& name, const SavedTensor& tensor,
                                                    const SavedBox& saved) {
  auto found = shards_.find(saved.file);
  if (found == shards_.end()) {
    Shard shard{SafetensorsFile(directory_ / saved.file, kIfDamaged), {}};
    if (const auto said = shard.file.metadata().find(kPlacements); said != shard.file.metadata().end())
      if (auto places = read_placements(said->second)) shard.places = std::move(*places);
    found = shards_.emplace(saved.file, std::move(shard)).first;
  }
  const Shard& shard = found->second;
  const auto stored = shard.file.tensors().find(saved.key);
  const auto place = shard.places.find(saved.key);
  if (stored == shard.file.tensors().end() || stored->second.shape != saved.box.size ||
      stored->second.dtype != tensor.dtype || place == shard.places.end() ||
      place->second != Placement{name, tensor.shape, saved.box.offset})
    throw Error(ErrorCode::input, (directory_ / saved.file).string(),
                "tensor " + text::quoted(name) + ": the file does not hold the box that " + kManifest +
                    " says it holds",
                "were files of a checkpoint swapped? copy it again, or resume from another");
  return shard;
}

// Reads the box `inside` of a saved box into `target`, which is contiguous: whole ranges directly, the others
// through a buffer.
void ShardedReader::fill(at::Tensor target, const Box& inside, const std::string& name,
                         const SavedTensor& tensor, const SavedBox& saved) {
  const uint64_t item = c10::elementSize(tensor.dtype);
  Stretches stretches(shard_of(name, tensor, saved).file, saved,
                      static_cast<uint64_t>(saved.box.numel()) * item, piece_);
  const auto load = [&](uint64_t index, char* out) {
    if (stretches.read(index, out)) return;
    throw Error(ErrorCode::input, (directory_ / saved.file).string(),
                "tensor " + text::quoted(name) + ": the bytes are not those that were saved", kIfDamaged);
  };
  char* to = static_cast<char*>(target.mutable_data_ptr());
  std::optional<uint64_t> buffered;
  for_each_run(inside, saved.box.size, [&](int64_t first, int64_t count) {
    uint64_t at = static_cast<uint64_t>(first) * item;
    const uint64_t end = at + static_cast<uint64_t>(count) * item;
    while (at < end) {
      const uint64_t index = at / Manifest::kStretch, begin = index * Manifest::kStretch;
      const uint64_t bytes = std::min(end, stretches.end_of(index)) - at;
      if (at == begin && at + bytes == stretches.end_of(index)) {
        load(index, to);
      } else {
        buffer_.resize(Manifest::kStretch);
        if (buffered != index) load(index, buffer_.data());
        buffered = index;
        std::memcpy(to, buffer_.data() + (at - begin), bytes);
      }
      to += bytes;
      at += bytes;
    }
  });
}

}  // namespace heddle::checkpoint
