// Which tokens of a row each rank of the axis cp holds. Integers only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::context {

enum class Cut {
  // With a causal mask ranks have equal work: of 2 * ranks chunks of each document a rank has the r-th and
  // the
  // r-th from the end where the documents divide, else blocks of tokens that add up to equal work.
  balanced,
  contiguous  // rank r has the r-th of `ranks` chunks of the row
};

// Tokens [begin, end) of a row, all of one document under Cut::balanced.
struct Stretch {
  int32_t begin, end;
  bool operator==(const Stretch&) const = default;
};

// [rank]: its stretches, ascending. All ranks have equally many tokens.
using Assignment = std::vector<std::vector<Stretch>>;

// documents: where each document of the row begins, and the row's length, which `ranks` divide (a row of one
// document: 2 * ranks). The same on every rank.
Assignment assign(std::span<const int32_t> documents, int ranks, Cut cut);

// The number of keys that tokens of these stretches see under a causal mask.
int64_t work_of(std::span<const Stretch> stretches, std::span<const int32_t> documents);

// Where the document of `token` begins in `documents`: its index.
size_t document_at(std::span<const int32_t> documents, int32_t token);

}  // namespace heddle::context
