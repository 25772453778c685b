// Compares what the ranks were started with, so that a rank with another YAML or plugin is named at once.
#include <c10/util/hash.h>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/mesh/layout.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/mesh/call.h"

namespace heddle::mesh {
namespace {

constexpr size_t kShownParts = 4;

// part -> value -> the ranks that have it.
using Table = std::map<std::string, std::map<std::string, std::vector<int>>>;

std::map<std::string, std::string> parts_of(const std::string& fingerprint) {
  std::map<std::string, std::string> parts;
  std::istringstream lines(fingerprint);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    const std::string part = line.substr(0, colon);
    parts[part] += colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return parts;
}

// Few texts differ (one, if all agree), ranks are many.
Table tabulate(std::span<const std::string> texts) {
  std::map<std::string, std::vector<int>> by_text;
  for (size_t rank = 0; rank < texts.size(); ++rank) by_text[texts[rank]].push_back(static_cast<int>(rank));
  std::map<std::string, std::map<std::string, std::vector<int>>> table;
  for (const auto& [text, ranks] : by_text) {
    for (const auto& [part, value] : parts_of(text)) table[part];
  }
  for (const auto& [text, ranks] : by_text) {
    const auto parts = parts_of(text);
    for (auto& [part, values] : table) {
      const auto found = parts.find(part);
      const char* missing = part.starts_with(kFilePart) ? "not found" : "(nothing)";
      auto& list = values[found == parts.end() ? missing : found->second];
      list.insert(list.end(), ranks.begin(), ranks.end());
    }
  }
  return table;
}

// The values of one part with their ranks, in the order of the first rank of each value.
std::vector<std::string> values_with_ranks(std::map<std::string, std::vector<int>> values,
                                           const std::function<std::string(int)>& host_name) {
  std::vector<std::pair<std::vector<int>, std::string>> by_rank;
  for (auto& [value, ranks] : values) {
    std::sort(ranks.begin(), ranks.end());
    by_rank.emplace_back(ranks, value);
  }
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<std::string> words;
  for (const auto& [ranks, value] : by_rank) words.push_back(value + " on " + name_ranks(ranks, host_name));
  return words;
}

std::string shortened(std::vector<std::string> differences) {
  const size_t more = differences.size() > kShownParts ? differences.size() - kShownParts : 0;
  differences.resize(differences.size() - more);
  return text::join(differences, "; ") + (more > 0 ? "; and " + std::to_string(more) + " more" : "");
}

}  // namespace

void compare_fingerprints(std::span<const std::string> texts,
                          const std::function<std::string(int)>& host_name) {
  if (std::equal(texts.begin() + 1, texts.end(), texts.begin())) return;
  const auto host = [&](int rank) { return host_name ? host_name(rank) : std::string(); };
  std::vector<std::string> settings, files;
  for (const auto& [part, values] : tabulate(texts)) {
    if (values.size() < 2) continue;
    if (part.starts_with(kFilePart))
      files.push_back(part.substr(kFilePart.size()) + " (" +
                      text::join(values_with_ranks(values, host), "; ") + ")");
    else
      settings.push_back(part + " is " + text::join(values_with_ranks(values, host)));
  }
  if (settings.empty())
    throw Error(ErrorCode::mesh, "mesh", "the ranks read different files: " + shortened(files),
                "Copy the same files to each host, or keep them on a disk that all hosts share.");
  settings.insert(settings.end(), files.begin(), files.end());
  throw Error(ErrorCode::mesh, "mesh", "the ranks were not started alike: " + shortened(settings),
              "start every rank with the same configuration, plugins and build of heddle");
}

void agree(Rendezvous& rendezvous, const std::string& fingerprint) {
  const auto are_equal = [](std::span<const std::string> digests) -> std::vector<std::string> {
    return {std::equal(digests.begin() + 1, digests.end(), digests.begin()) ? "equal" : "different"};
  };
  if (rendezvous.meet("fingerprint", c10::sha1(fingerprint).str(), are_equal) == "equal") return;
  rendezvous.meet("fingerprints", fingerprint, [&](std::span<const std::string> texts) {
    compare_fingerprints(texts, [&](int rank) { return rendezvous.host_name(rank); });
    return std::vector<std::string>{""};
  });
}

}  // namespace heddle::mesh
