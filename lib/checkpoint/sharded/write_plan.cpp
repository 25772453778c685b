// From the boxes that each rank holds to those that it writes.
#include "heddle/checkpoint/sharded.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "lib/checkpoint/safetensors/dtype_names.h"
#include "lib/checkpoint/sharded/assign_writers.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;

// A box and its holders, in the order of the ranks.
struct Holding {
  std::string name;
  Box box;
  Held held;
  std::vector<size_t> parts;  // which of those that each of held.ranks described
};

struct Holdings {
  std::map<std::string, SavedTensor> tensors;
  std::vector<Holding> boxes;
  std::map<std::pair<std::string, Box>, size_t> place;  // in boxes
};

// The length of the common prefix; never in the middle of a character.
size_t shared_start(const std::string& a, const std::string& b) {
  auto length = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (length > 0 && length < b.size() && (b[length] & 0xc0) == 0x80) --length;
  return length;
}

uint64_t bytes_of(const Box& box, c10::ScalarType dtype) {
  return static_cast<uint64_t>(box.numel()) * c10::elementSize(dtype);
}

void add(Holdings& all, int rank, size_t part, const std::string& name, const json& line) {
  const auto dtype = dtype_named(line[2].get<std::string>());
  SavedTensor fresh{dtype.value_or(at::kFloat), line[3].get<std::vector<int64_t>>(), {}};
  const SavedTensor& tensor = all.tensors.emplace(name, std::move(fresh)).first->second;
  Box box{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
  if (line.size() > 4) box = {line[4].get<std::vector<int64_t>>(), line[5].get<std::vector<int64_t>>()};
  if (!dtype || *dtype != tensor.dtype || line[3] != json(tensor.shape) || !fits(box, tensor.shape))
    throw Error(ErrorCode::internal, "checkpoint",
                "the ranks do not agree about the dtype or the shape of " + text::quoted(name));
  const auto [at, is_new] = all.place.emplace(std::pair(name, box), all.boxes.size());
  if (is_new) all.boxes.push_back({name, box, {bytes_of(box, tensor.dtype), {}}, {}});
  Holding& holding = all.boxes[at->second];
  std::vector<int>& ranks = holding.held.ranks;
  if (!ranks.empty() && ranks.back() == rank) return;
  ranks.push_back(rank);
  holding.parts.push_back(part);
}

Holdings together_hold(std::span<const std::string> ranks) {
  Holdings all;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::string name;
    size_t part = 0;
    for (const json& line : json::parse(ranks[rank])) {
      name = name.substr(0, line[0].get<size_t>()) + line[1].get<std::string>();
      add(all, static_cast<int>(rank), part++, name, line);
    }
  }
  return all;
}

void check_cover(const Holdings& all) {
  std::map<std::string, std::vector<Box>> boxes;
  for (const Holding& one : all.boxes) boxes[one.name].push_back(one.box);
  for (const auto& [name, tensor] : all.tensors) {
    int64_t covered = 0;
    for (const Box& box : boxes[name]) covered += box.numel();
    const int64_t whole = Box{tensor.shape, tensor.shape}.numel();
    if (covered != whole)
      throw Error(ErrorCode::internal, "checkpoint",
                  "the shards of " + text::quoted(name) + " hold " + std::to_string(covered) +
                      " numbers, the whole has " + std::to_string(whole));
    if (!are_apart(boxes[name]))
      throw Error(ErrorCode::internal, "checkpoint", "the shards of " + text::quoted(name) + " overlap");
  }
}

// `count` boxes of equally many rows, except one.
std::vector<Box> cut(const Box& box, int64_t count) {
  if (count == 1) return {box};
  std::vector<Box> out(static_cast<size_t>(count), box);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = box.size[0] * i / count, end = box.size[0] * (i + 1) / count;
    out[static_cast<size_t>(i)].offset[0] += begin;
    out[static_cast<size_t>(i)].size[0] = end - begin;
  }
  return out;
}

}  // namespace

std::string describe(std::span<const Part> parts) {
  json out = json::array();
  std::string before;
  for (const Part& part : parts) {
    if (part.tensor.numel() == 0 || part.only_read) continue;
    const size_t shared = shared_start(before, part.name);
    before = part.name;
    json line{shared, part.name.substr(shared), name_of_dtype(part.tensor.scalar_type()), part.shape};
    if (const auto size = part.tensor.sizes().vec(); size != part.shape) {
      line.push_back(part.offset);
      line.push_back(size);
    }
    out.push_back(std::move(line));
  }
  return out.dump();
}

WritePlan plan_writing(std::span<const std::string> ranks) {
  Holdings all = together_hold(ranks);
  check_cover(all);
  const int world = static_cast<int>(ranks.size());
  uint64_t total = 0;
  for (const Holding& one : all.boxes) total += one.held.bytes;
  WritePlan plan;
  std::vector<Held> held;
  for (size_t holding = 0; holding < all.boxes.size(); ++holding) {
    const Holding& one = all.boxes[holding];
    const int64_t rows = one.box.size.empty() ? 1 : one.box.size[0];
    for (const Box& box : cut(one.box, cuts(one.held, rows, total, world))) {
      plan.boxes.push_back({one.name, box, one.box, 0, holding, 0});
      held.push_back({bytes_of(box, all.tensors.at(one.name).dtype), one.held.ranks});
    }
  }
  const std::vector<int> writers = assign_writers(held, world);
  std::map<std::pair<int, std::string>, int> seen;
  for (size_t i = 0; i < writers.size(); ++i) {
    PlannedBox& one = plan.boxes[i];
    one.rank = writers[i];
    const Holding& holding = all.boxes[one.part];
    const auto& ranks = holding.held.ranks;
    one.part = holding.parts[static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), one.rank) -
                                                 ranks.begin())];
    one.again = seen[{one.rank, one.name}]++;
  }
  plan.tensors = std::move(all.tensors);
  return plan;
}

std::string box_key(const std::string& tensor, int again) {
  return again == 0 ? tensor : tensor + "#" + std::to_string(again);
}

// Four numbers for each share.
std::vector<std::string> shares(const WritePlan& plan, int world_size) {
  std::vector<std::string> told(static_cast<size_t>(world_size));
  for (const PlannedBox& one : plan.boxes) {
    const bool whole = one.box == one.held;
    const int64_t first_row = whole ? 0 : one.box.offset[0] - one.held.offset[0];
    std::string& text = told[static_cast<size_t>(one.rank)];
    for (const int64_t number : {static_cast<int64_t>(one.part), first_row,
                                 whole ? WriteShare::kAll : one.box.size[0], static_cast<int64_t>(one.again)})
      text += std::to_string(number) + " ";
  }
  return told;
}

std::vector<WriteShare> read_shares(const std::string& told) {
  std::vector<WriteShare> out;
  std::istringstream in(told);
  for (WriteShare one; in >> one.part >> one.first_row >> one.rows >> one.again;) out.push_back(one);
  return out;
}

}  // namespace heddle::checkpoint
