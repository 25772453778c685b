// The wording of lost ranks and of timeouts.
#include "heddle/mesh/call.h"

#include <algorithm>
#include <map>
#include <utility>
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

std::string name_ranks(std::span<const int> ranks, const std::function<std::string(int)>& host_name) {
  std::vector<std::pair<std::string, std::vector<int>>> hosts;
  std::map<std::string, size_t> places;
  for (const int rank : ranks) {
    const std::string host = host_name(rank);
    const auto [place, is_new] = places.emplace(host, hosts.size());
    if (is_new) hosts.emplace_back(host, std::vector<int>());
    hosts[place->second].second.push_back(rank);
  }
  std::vector<std::string> words;
  for (const auto& [host, members] : hosts)
    words.push_back(std::string(members.size() > 1 ? "ranks " : "rank ") + list_ranks(members) +
                    (host.empty() ? "" : " on " + host));
  return text::join(words, " and ");
}

Error rank_lost(int rank, const std::string& how, const std::string& waited, const std::string& host) {
  std::string what = "rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host) + " " + how;
  if (!waited.empty()) what += "; this rank waited for it in " + waited;
  return Error(ErrorCode::rank_lost, "mesh", what,
               "see the output of rank " + std::to_string(rank) + " for the cause; then start the run again");
}

Error timed_out(const std::string& waited, std::chrono::milliseconds elapsed,
                std::span<const Absent> absent) {
  std::string what = waited + " did not end in " + in_seconds(elapsed);
  std::map<std::string, std::vector<int>> by_cause;
  std::map<int, std::string> hosts;
  for (const Absent& late : absent) {
    by_cause[late.why].push_back(late.rank);
    hosts[late.rank] = late.host;
  }
  for (const auto& [why, ranks] : by_cause) {
    what += "; " + name_ranks(ranks, [&](int rank) { return hosts[rank]; }) + " did not come";
    if (!why.empty()) what += " (" + why + ")";
  }
  return Error(ErrorCode::timeout, "mesh", what,
               "see what the absent ranks do; a larger dist_env.timeout_minutes gives them more time");
}

}  // namespace heddle::mesh
