// Saving: the ranks say what they hold, each writes what it is the first to hold, rank 0 writes the manifest.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/checksum.h"
#include "heddle/checkpoint/dtype_names.h"
#include "heddle/checkpoint/safetensors_writer.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/checkpoint/together.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;

Box box_of(const Part& part) {
  return {part.offset, part.tensor.sizes().vec()};
}

// [name, dtype, shape, offset, size] of every box that holds something.
std::string describe(std::span<const Part> parts) {
  json out = json::array();
  for (const Part& part : parts)
    if (part.tensor.numel() > 0)
      out.push_back({part.name, name_of_dtype(part.tensor.scalar_type()), part.shape, part.offset,
                     part.tensor.sizes().vec()});
  return out.dump();
}

// What all ranks hold together: each box once, and the rank that writes it.
struct Holdings {
  Manifest manifest;
  std::map<std::pair<std::string, Box>, int> owner;
};

Holdings together_hold(const std::vector<std::string>& ranks) {
  Holdings all;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const json& line : json::parse(ranks[rank])) {
      const auto name = line[0].get<std::string>();
      const Box box{line[3].get<std::vector<int64_t>>(), line[4].get<std::vector<int64_t>>()};
      if (!all.owner.emplace(std::pair(name, box), static_cast<int>(rank)).second) continue;
      const auto dtype = dtype_named(line[1].get<std::string>());
      SavedTensor fresh{dtype.value_or(at::kFloat), line[2].get<std::vector<int64_t>>(), {}};
      const SavedTensor& tensor = all.manifest.tensors.emplace(name, std::move(fresh)).first->second;
      if (!dtype || *dtype != tensor.dtype || !fits(box, tensor.shape))
        throw Error(ErrorCode::internal, "checkpoint",
                    "the ranks do not agree about the dtype or the shape of " + text::quoted(name));
    }
  return all;
}

void check_cover(const Holdings& all) {
  std::map<std::string, int64_t> covered;
  for (const auto& [box, rank] : all.owner) covered[box.first] += box.second.numel();
  for (const auto& [name, tensor] : all.manifest.tensors)
    if (const int64_t whole = Box{tensor.shape, tensor.shape}.numel(); covered[name] != whole)
      throw Error(ErrorCode::internal, "checkpoint",
                  "the shards of " + text::quoted(name) + " hold " + std::to_string(covered[name]) +
                      " numbers, the whole has " + std::to_string(whole));
}

std::string file_name(int rank, const std::string& word) {
  char name[96];
  std::snprintf(name, sizeof name, "shard-%05d-%s-00001-of-00001.safetensors", rank + 1, word.c_str());
  return name;
}

// What one rank writes, and what it tells the others of it.
class RankFile {
 public:
  RankFile(const std::filesystem::path& directory, const std::string& word, int rank)
      : directory_(directory), name_(file_name(rank, word)) {}

  void add(const Part& part) {
    const size_t again = seen_[part.name]++;
    declared_.push_back({again == 0 ? part.name : part.name + "#" + std::to_string(again),
                         part.tensor.scalar_type(), part.tensor.sizes().vec()});
    parts_.push_back(&part);
  }

  void write() {
    if (parts_.empty()) return;
    SafetensorsWriter writer(directory_ / name_, declared_);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const at::Tensor bytes = parts_[i]->tensor.detach().to(at::kCPU).contiguous();
      writer.append(bytes);
      lines_.push_back({parts_[i]->name, name_, declared_[i].name, parts_[i]->offset, bytes.sizes().vec(),
                        sums_of(bytes)});
    }
    writer.finish();
  }

  std::string lines() const { return lines_.dump(); }

 private:
  static std::vector<std::string> sums_of(const at::Tensor& tensor) {
    const std::string_view all(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    std::vector<std::string> sums;
    for (size_t at = 0; at < all.size(); at += Manifest::kStretch)
      sums.push_back(checksum(all.substr(at, Manifest::kStretch)));
    return sums;
  }

  std::filesystem::path directory_;
  std::string name_;
  std::map<std::string, size_t> seen_;
  std::vector<TensorToWrite> declared_;
  std::vector<const Part*> parts_;
  json lines_ = json::array();
};

void add_boxes(Manifest& manifest, const std::string& lines) {
  for (const json& line : json::parse(lines))
    manifest.tensors.at(line[0]).boxes.push_back(
        {line[1],
         line[2],
         {line[3].get<std::vector<int64_t>>(), line[4].get<std::vector<int64_t>>()},
         line[5].get<std::vector<std::string>>()});
}

}  // namespace

void write_sharded(const std::filesystem::path& directory, const std::string& word,
                   std::span<const Part> parts, Rendezvous& meeting, const std::string& key) {
  Holdings all;
  const std::vector<std::string> held = meeting.exchange("store/" + key, describe(parts));
  RankFile mine(directory, word, meeting.rank());
  together(meeting, "write/" + key, [&] {
    all = together_hold(held);
    check_cover(all);
    std::set<std::pair<std::string, Box>> taken;  // the same box twice on this rank is one
    for (const Part& part : parts) {
      const std::pair box(part.name, box_of(part));
      if (part.tensor.numel() > 0 && all.owner.at(box) == meeting.rank() && taken.insert(box).second)
        mine.add(part);
    }
    mine.write();
  });
  const std::vector<std::string> lines = meeting.exchange("wrote/" + key, mine.lines());
  on_first(meeting, "manifest/" + key, [&] {
    for (const std::string& one : lines) add_boxes(all.manifest, one);
    write_text(directory / kManifest, written(all.manifest));
  });
}

}  // namespace heddle::checkpoint
