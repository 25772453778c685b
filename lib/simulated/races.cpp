// An access is forgotten once a later write that it is ordered before covers it.
#include "lib/simulated/races.h"

#include <algorithm>

namespace heddle::simulated {
namespace {

const char* name_of(const Range& range) {
  return range.writes ? "writes" : "reads";
}

bool overlap(const Range& one, const Range& other) {
  return one.begin < other.end && other.begin < one.end;
}

bool covers(const Range& one, const Range& other) {
  return one.begin <= other.begin && other.end <= one.end;
}

}  // namespace

uint64_t Clock::tick(int stream) {
  if (times_.size() <= static_cast<size_t>(stream)) times_.resize(static_cast<size_t>(stream) + 1);
  return ++times_[static_cast<size_t>(stream)];
}

void Clock::join(const Clock& other) {
  if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
  for (size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}

std::string Races::last_access(const std::byte* block) const {
  const auto found = blocks_.find(block);
  if (found == blocks_.end() || found->second.empty()) return "";
  const Access& last = found->second.back();
  return last.place.work + " " + name_of(last.range);
}

std::string Races::add(const std::byte* block, const Range& range, const Place& place, const Clock& now) {
  std::vector<Access>& accesses = blocks_[block];
  std::string report;
  for (const Access& before : accesses) {
    if (!(range.writes || before.range.writes) || !overlap(range, before.range)) continue;
    if (now.of(before.place.stream) >= before.time) continue;
    report = "race: " + place.work + " " + name_of(range) + " what " + before.place.work + " " +
             name_of(before.range) + ", and no event orders them";
    break;
  }
  // A later access of the same stream stands for the earlier one; a write stands for all that it covers.
  std::erase_if(accesses, [&](const Access& before) {
    if (!covers(range, before.range)) return false;
    return range.writes || (before.place.stream == place.stream && !before.range.writes);
  });
  accesses.push_back({range, place, now.of(place.stream)});
  return report;
}

}  // namespace heddle::simulated
