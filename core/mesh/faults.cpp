// The wording of lost ranks and of timeouts.
#include "heddle/mesh/call.h"

#include <map>
#include <vector>

#include "heddle/base/text.h"

namespace heddle::mesh {

std::string in_seconds(std::chrono::milliseconds time) {
  std::string text = std::to_string(time.count() / 1000);
  if (time.count() % 1000 >= 100) text += "." + std::to_string(time.count() % 1000 / 100);
  return text + " s";
}

std::string list_ranks(std::span<const int> ranks) {
  std::vector<std::string> words;
  for (size_t start = 0; start < ranks.size();) {
    size_t end = start + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - start > 2) {
      words.push_back(std::to_string(ranks[start]) + "-" + std::to_string(ranks[end - 1]));
    } else {
      for (size_t i = start; i < end; ++i) words.push_back(std::to_string(ranks[i]));
    }
    start = end;
  }
  return text::join(words);
}

Error rank_lost(int rank, const std::string& how, const std::string& waited) {
  std::string what = "rank " + std::to_string(rank) + " " + how;
  if (!waited.empty()) what += "; this rank waited for it in " + waited;
  return Error(ErrorCode::rank_lost, "mesh", what,
               "see the output of rank " + std::to_string(rank) + " for the cause; then start the run again");
}

Error timed_out(const std::string& waited, std::chrono::milliseconds elapsed,
                std::span<const Absent> absent) {
  std::string what = waited + " did not end in " + in_seconds(elapsed);
  std::map<std::string, std::vector<int>> by_cause;
  for (const Absent& one : absent) by_cause[one.why].push_back(one.rank);
  for (const auto& [why, ranks] : by_cause) {
    what += std::string("; rank") + (ranks.size() > 1 ? "s " : " ") + list_ranks(ranks) + " did not come";
    if (!why.empty()) what += " (" + why + ")";
  }
  return Error(ErrorCode::timeout, "mesh", what,
               "see what the absent ranks do; a larger dist_env.timeout_minutes gives them more time");
}

}  // namespace heddle::mesh
