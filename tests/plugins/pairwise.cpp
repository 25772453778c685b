// Greedy construction: each row starts from a missing pair and adds values that cover the most missing pairs.
#include "plugins/pairwise.h"

#include <array>
#include <set>

namespace heddle::tests {
namespace {

using Pair = std::array<int, 4>;  // a setting and its value, a later setting and its value
using Legal = std::function<bool(const Choice&)>;

Choice open_choice(const std::vector<int>& counts) {
  return Choice(counts.size(), kOpen);
}

std::set<Pair> all_pairs(const std::vector<int>& counts) {
  std::set<Pair> pairs;
  const int settings = static_cast<int>(counts.size());
  for (int a = 0; a < settings; ++a)
    for (int b = a + 1; b < settings; ++b)
      for (int x = 0; x < counts[a]; ++x)
        for (int y = 0; y < counts[b]; ++y) pairs.insert({a, x, b, y});
  return pairs;
}

std::vector<Pair> pairs_with(const Choice& choice, int setting) {
  std::vector<Pair> pairs;
  for (int other = 0; other < static_cast<int>(choice.size()); ++other) {
    if (other == setting || choice[other] == kOpen) continue;
    const int first = std::min(setting, other), second = std::max(setting, other);
    pairs.push_back({first, choice[first], second, choice[second]});
  }
  return pairs;
}

// Sets the legal value that covers the most missing pairs. Returns false if no value is legal.
bool choose(Choice& choice, int setting, int count, const std::set<Pair>& missing, const Legal& legal) {
  int best = kOpen, most = -1;
  for (int value = 0; value < count; ++value) {
    choice[setting] = value;
    if (!legal(choice)) continue;
    int covers = 0;
    for (const Pair& pair : pairs_with(choice, setting)) covers += static_cast<int>(missing.count(pair));
    if (covers > most) most = covers, best = value;
  }
  choice[setting] = best;
  return best != kOpen;
}

bool complete(Choice& choice, const std::vector<int>& counts, const std::set<Pair>& missing,
              const Legal& legal) {
  if (!legal(choice)) return false;
  for (int setting = 0; setting < static_cast<int>(counts.size()); ++setting)
    if (choice[setting] == kOpen && !choose(choice, setting, counts[setting], missing, legal)) return false;
  return true;
}

}  // namespace

std::vector<Choice> pairwise(const std::vector<int>& counts, const Legal& legal) {
  std::set<Pair> missing = all_pairs(counts);
  std::vector<Choice> rows;
  while (!missing.empty()) {
    const Pair wanted = *missing.begin();
    Choice choice = open_choice(counts);
    choice[wanted[0]] = wanted[1];
    choice[wanted[2]] = wanted[3];
    missing.erase(wanted);
    if (!complete(choice, counts, missing, legal)) continue;
    for (int setting = 0; setting < static_cast<int>(counts.size()); ++setting)
      for (const Pair& pair : pairs_with(choice, setting)) missing.erase(pair);
    rows.push_back(std::move(choice));
  }
  return rows;
}

}  // namespace heddle::tests
