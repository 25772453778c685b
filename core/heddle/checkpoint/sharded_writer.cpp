// Saving: the ranks agree on who writes what, each writes its file, one writes the manifest.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/placements.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/checkpoint/together.h"

namespace heddle::checkpoint {
namespace {

constexpr size_t kDigits = 16;  // of a checksum

size_t stretches_of(const PlannedBox& one, c10::ScalarType dtype) {
  const uint64_t bytes = static_cast<uint64_t>(one.box.numel()) * c10::elementSize(dtype);
  return static_cast<size_t>((bytes + Manifest::kStretch - 1) / Manifest::kStretch);
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::internal, "checkpoint", what);
}

}  // namespace

ShardedWriter::ShardedWriter(std::string word, std::span<const Part> parts, Rendezvous& meeting,
                             const std::string& key)
    : word_(std::move(word)),
      described_(describe(parts)),
      rank_(meeting.rank()),
      plan_(plan_writing(meeting.exchange("hold/" + key, described_))) {}

template <class Visit>
void ShardedWriter::for_mine(const Visit& visit) const {
  for (const PlannedBox& one : plan_.boxes)
    if (one.rank == rank_) visit(one);
}

std::vector<Part> ShardedWriter::mine(std::span<const Part> parts) const {
  if (describe(parts) != described_) refuse("the shards of this rank are not those that were agreed on");
  std::map<std::pair<std::string, Box>, const Part*> held;
  for (const Part& part : parts)
    held.emplace(std::pair(part.name, Box{part.offset, part.tensor.sizes().vec()}), &part);
  std::vector<Part> out;
  for_mine([&](const PlannedBox& one) {
    const Part& part = *held.at({one.name, one.held});
    at::Tensor box = part.tensor.detach();
    if (one.box != one.held) box = box.narrow(0, one.box.offset[0] - one.held.offset[0], one.box.size[0]);
    out.push_back({one.name, box, part.shape, one.box.offset});
  });
  return out;
}

std::string ShardedWriter::file_of(int rank) const {
  char name[96];
  std::snprintf(name, sizeof name, "shard-%05d-%s-00001-of-00001.safetensors", rank + 1, word_.c_str());
  return name;
}

std::string ShardedWriter::write(const std::filesystem::path& directory, std::span<const Part> mine) const {
  std::vector<TensorToWrite> declared;
  std::map<std::string, Placement> places;
  for_mine([&](const PlannedBox& one) {
    const SavedTensor& tensor = plan_.tensors.at(one.name);
    declared.push_back({one.key, tensor.dtype, one.box.size});
    places[one.key] = {one.name, tensor.shape, one.box.offset};
  });
  if (declared.size() != mine.size()) refuse("boxes are missing that this rank was to write");
  if (declared.empty()) return "";
  SafetensorsWriter writer(directory / file_of(rank_), declared, {{kPlacements, written(places)}});
  std::string digits;
  for (const Part& part : mine)
    for (const std::string& sum : writer.append_summed(part.tensor, Manifest::kStretch)) digits += sum;
  writer.finish();
  return digits;
}

void ShardedWriter::write_manifest(const std::filesystem::path& directory,
                                   std::span<const std::string> written_by) const {
  Manifest manifest{plan_.tensors, ""};
  std::vector<size_t> at(written_by.size(), 0);
  for (const PlannedBox& one : plan_.boxes) {
    SavedTensor& tensor = manifest.tensors.at(one.name);
    SavedBox saved{file_of(one.rank), one.key, one.box, {}};
    size_t& next = at[static_cast<size_t>(one.rank)];
    const std::string& digits = written_by[static_cast<size_t>(one.rank)];
    for (size_t left = stretches_of(one, tensor.dtype); left > 0; --left, next += kDigits)
      saved.sums.push_back(digits.substr(next, kDigits));
    tensor.boxes.push_back(std::move(saved));
  }
  for (size_t rank = 0; rank < at.size(); ++rank)
    if (at[rank] != written_by[rank].size()) refuse("a rank has written other boxes than were agreed on");
  write_text(directory / kManifest, written(manifest));
}

void write_sharded(const std::filesystem::path& directory, const std::string& word,
                   std::span<const Part> parts, Rendezvous& meeting, const std::string& key) {
  const ShardedWriter writer(word, parts, meeting, key);
  const auto told =
      tell_together(meeting, "write/" + key, [&] { return writer.write(directory, writer.mine(parts)); });
  on_first(meeting, "manifest/" + key, [&] { writer.write_manifest(directory, told); });
}

}  // namespace heddle::checkpoint
