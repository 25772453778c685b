// Assignment of tokens to the ranks of cp: chunks from both ends of a document, or blocks by decreasing work.
#include "assignment.h"

#include <algorithm>

namespace heddle::context {
namespace {

bool divide(std::span<const int32_t> documents, int32_t chunks) {
  for (size_t i = 0; i + 1 < documents.size(); ++i)
    if ((documents[i + 1] - documents[i]) % chunks != 0) return false;
  return true;
}

Assignment from_both_ends(std::span<const int32_t> documents, int32_t ranks) {
  Assignment out(static_cast<size_t>(ranks));
  for (size_t i = 0; i + 1 < documents.size(); ++i) {
    const int32_t chunk = (documents[i + 1] - documents[i]) / (2 * ranks);
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const int32_t head = documents[i] + rank * chunk, tail = documents[i + 1] - (rank + 1) * chunk;
      out[static_cast<size_t>(rank)].push_back({head, head + chunk});
      out[static_cast<size_t>(rank)].push_back({tail, tail + chunk});
    }
  }
  return out;
}

struct Block {
  Stretch tokens;
  int32_t position;  // of the first token, within the document
};

// Number of keys that `count` tokens from `position` on see under a causal mask.
int64_t work(int64_t position, int64_t count) {
  return count * position + count * (count + 1) / 2;
}

// Splits all documents into blocks, in decreasing order of work per token.
std::vector<Block> blocks_of(std::span<const int32_t> documents, int32_t size) {
  std::vector<Block> out;
  for (size_t i = 0; i + 1 < documents.size(); ++i)
    for (int32_t begin = documents[i]; begin < documents[i + 1]; begin += size)
      out.push_back({{begin, std::min(begin + size, documents[i + 1])}, begin - documents[i]});
  std::stable_sort(out.begin(), out.end(),
                   [](const Block& a, const Block& b) { return a.position > b.position; });
  return out;
}

// Gives each block to the rank with the least work that has room. A block that does not fit is split.
Assignment by_work(std::span<const int32_t> documents, int32_t ranks) {
  constexpr int32_t kLargest = 128, kBlocksEach = 32;
  const int32_t each = documents.back() / ranks;
  Assignment out(static_cast<size_t>(ranks));
  std::vector<int64_t> loads(out.size());
  std::vector<int32_t> room(out.size(), each);
  for (Block block : blocks_of(documents, std::clamp(each / kBlocksEach, 1, kLargest)))
    while (block.tokens.begin < block.tokens.end) {
      size_t least = out.size();
      for (size_t rank = 0; rank < out.size(); ++rank)
        if (room[rank] > 0 && (least == out.size() || loads[rank] < loads[least])) least = rank;
      const int32_t count = std::min(room[least], block.tokens.end - block.tokens.begin);
      out[least].push_back({block.tokens.begin, block.tokens.begin + count});
      loads[least] += work(block.position, count);
      room[least] -= count;
      block.tokens.begin += count;
      block.position += count;
    }
  return out;
}

// Sorts the stretches and merges adjacent ones of a document.
void tidy(std::vector<Stretch>& stretches, std::span<const int32_t> documents) {
  std::sort(stretches.begin(), stretches.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> joined;
  for (const Stretch& one : stretches) {
    const bool begins = std::binary_search(documents.begin(), documents.end(), one.begin);
    if (!joined.empty() && joined.back().end == one.begin && !begins)
      joined.back().end = one.end;
    else
      joined.push_back(one);
  }
  stretches = std::move(joined);
}

}  // namespace

size_t document_at(std::span<const int32_t> documents, int32_t token) {
  return static_cast<size_t>(std::upper_bound(documents.begin(), documents.end(), token) -
                             documents.begin()) -
         1;
}

Assignment assign(std::span<const int32_t> documents, int ranks, Cut cut) {
  if (cut == Cut::contiguous) {
    const int32_t each = documents.back() / ranks;
    Assignment out;
    for (int32_t rank = 0; rank < ranks; ++rank) out.push_back({{rank * each, (rank + 1) * each}});
    return out;
  }
  Assignment out =
      divide(documents, 2 * ranks) ? from_both_ends(documents, ranks) : by_work(documents, ranks);
  for (std::vector<Stretch>& stretches : out) tidy(stretches, documents);
  return out;
}

int64_t work_of(std::span<const Stretch> stretches, std::span<const int32_t> documents) {
  int64_t sum = 0;
  for (const Stretch& one : stretches)
    sum += work(one.begin - documents[document_at(documents, one.begin)], one.end - one.begin);
  return sum;
}

}  // namespace heddle::context
