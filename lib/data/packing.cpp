// Next-fit packing, and packing into the emptiest pack with a heap.
#include "lib/data/packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace heddle {
namespace {

Packs next_fit(std::span<const int64_t> lengths, const PackRules& rules) {
  Packs out;
  int64_t room = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > rules.size) continue;
    if (lengths[i] > room) {
      if (rules.max_packs && out.size() == *rules.max_packs) break;
      out.begin_pack();
      room = rules.size;
    }
    out.add(static_cast<int64_t>(i));
    room -= lengths[i];
  }
  return out;
}

Packs emptiest_first(std::span<const int64_t> lengths, const PackRules& rules) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto length = [&](int64_t sample) { return lengths[static_cast<size_t>(sample)]; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return length(a) > length(b); });
  using Filled = std::pair<int64_t, size_t>;  // tokens and pack
  std::priority_queue<Filled, std::vector<Filled>, std::greater<>> emptiest;
  std::vector<std::vector<int64_t>> packs;
  for (const int64_t sample : order) {
    if (length(sample) > rules.size) continue;
    if (emptiest.empty() || emptiest.top().first + length(sample) > rules.size) {
      emptiest.emplace(length(sample), packs.size());
      packs.push_back({sample});
      continue;
    }
    const auto [tokens, pack] = emptiest.top();
    emptiest.pop();
    packs[pack].push_back(sample);
    emptiest.emplace(tokens + length(sample), pack);
  }
  if (rules.max_packs && static_cast<int64_t>(packs.size()) > *rules.max_packs)
    packs.resize(static_cast<size_t>(*rules.max_packs));
  Packs out;
  for (const std::vector<int64_t>& one : packs) {
    out.begin_pack();
    for (const int64_t sample : one) out.add(sample);
  }
  return out;
}

}  // namespace

std::span<const int64_t> Packs::operator[](int64_t pack) const {
  const auto at = static_cast<size_t>(pack);
  return std::span(samples_).subspan(static_cast<size_t>(first_[at]),
                                     static_cast<size_t>(first_[at + 1] - first_[at]));
}

Packs pack(std::span<const int64_t> lengths, const PackRules& rules) {
  return rules.packer == Packer::thd ? next_fit(lengths, rules) : emptiest_first(lengths, rules);
}

}  // namespace heddle
