// Saving: rank 0 plans who writes what, each rank writes its file, rank 0 writes the manifest.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/checkpoint/safetensors/safetensors_writer.h"
#include "lib/checkpoint/sharded/placements.h"

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

ShardedWriter::ShardedWriter(std::string word, std::span<const Part> parts, Rendezvous& rendezvous,
                             const std::string& key)
    : word_(std::move(word)), described_(describe(parts)), rank_(rendezvous.rank()) {
  const auto answer = [&](std::span<const std::string> texts) {
    plan_ = plan_writing(texts);
    return shares(plan_, rendezvous.world_size());
  };
  mine_ = read_shares(rendezvous.meet("hold/" + key, described_, answer));
}

std::vector<Part> ShardedWriter::mine(std::span<const Part> parts) const {
  if (describe(parts) != described_) refuse("the shards of this rank are not those that were agreed on");
  std::vector<const Part*> held;  // as described
  for (const Part& part : parts)
    if (part.tensor.numel() > 0 && !part.only_read) held.push_back(&part);
  std::vector<Part> out;
  for (const WriteShare& one : mine_) {
    Part share = *held.at(one.part);
    share.tensor = share.tensor.detach();
    if (one.rows != WriteShare::kAll) {
      share.tensor = share.tensor.narrow(0, one.first_row, one.rows);
      share.offset[0] += one.first_row;
    }
    out.push_back(std::move(share));
  }
  return out;
}

std::string ShardedWriter::file_of(int rank) const {
  char name[96];
  std::snprintf(name, sizeof name, "shard-%05d-%s-00001-of-00001.safetensors", rank + 1, word_.c_str());
  return name;
}

std::string ShardedWriter::write(const std::filesystem::path& directory, std::span<const Part> mine) const {
  if (mine_.size() != mine.size()) refuse("boxes are missing that this rank was to write");
  if (mine.empty()) return "";
  std::vector<TensorToWrite> declared;
  std::map<std::string, Placement> places;
  for (size_t i = 0; i < mine.size(); ++i) {
    const Part& part = mine[i];
    const std::string key = box_key(part.name, mine_[i].again);
    declared.push_back({key, part.tensor.scalar_type(), part.tensor.sizes().vec()});
    places[key] = {part.name, part.shape, part.offset};
  }
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
    SavedBox saved{file_of(one.rank), box_key(one.name, one.again), one.box, {}};
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
                   std::span<const Part> parts, Rendezvous& rendezvous, const std::string& key) {
  const ShardedWriter writer(word, parts, rendezvous, key);
  const auto told = gather_on_first(rendezvous, "write/" + key,
                                    [&] { return writer.write(directory, writer.mine(parts)); });
  on_first(rendezvous, "manifest/" + key, [&] { writer.write_manifest(directory, told); });
}

}  // namespace heddle::checkpoint
