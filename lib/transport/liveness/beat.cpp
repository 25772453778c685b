// Heartbeats as text, and the tree along which late ranks become known.
#include "lib/transport/liveness/beat.h"

#include <sstream>

namespace heddle::mesh {
namespace {

constexpr int kBranches = 8;
constexpr const char* kNone = "-";

}  // namespace

// The table is last: it may be empty.
std::string Beat::text() const {
  std::ostringstream out;
  out << count << ' ' << state << ' ';
  if (late.empty()) out << kNone;
  for (const LateRank& one : late) out << one.rank << one.how << ',';
  out << ' ' << (contact.empty() ? kNone : contact) << ' ' << process.id << ' ' << process.started << ' '
      << process.table;
  return out.str();
}

Beat Beat::read(const std::string& text) {
  Beat beat;
  std::string list;
  std::istringstream(text) >> beat.count >> beat.state >> list >> beat.contact >> beat.process.id >>
      beat.process.started >> beat.process.table;
  if (beat.contact == kNone) beat.contact.clear();
  std::istringstream entries(list == kNone ? "" : list);
  char comma = ',';
  for (LateRank one; entries >> one.rank >> one.how >> comma;) beat.late.push_back(one);
  return beat;
}

std::vector<int> heard_by(int rank, int world_size) {
  std::vector<int> ranks;
  for (int64_t width = 1; width < world_size && rank % (width * kBranches) == 0; width *= kBranches)
    for (int64_t first = rank + width; first < rank + width * kBranches && first < world_size; first += width)
      ranks.push_back(static_cast<int>(first));
  return ranks;
}

}  // namespace heddle::mesh
