// Assignment of the tokens of a row to the ranks of cp. Integers only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::context {

enum class Cut {
  // Gives ranks equal work under a causal mask. Each document is cut into 2 * ranks chunks, and rank r holds
  // chunk r from the start and chunk r from the end. If a document does not divide, blocks of tokens with
  // equal work are used.
  balanced,
  contiguous  // rank r holds the r-th of `ranks` equal chunks of the row
};

// Tokens [begin, end) of a row. Under Cut::balanced they belong to one document.
struct Stretch {
  int32_t begin, end;
  bool operator==(const Stretch&) const = default;
};

// Ascending stretches of each rank: [rank]. All ranks have equally many tokens.
using Assignment = std::vector<std::vector<Stretch>>;

// Assigns a row to ranks; every rank computes the same result. documents: where each document of the row
// begins, then the row's length. `ranks` divides the length, and 2 * ranks that of a row of one document.
Assignment assign(std::span<const int32_t> documents, int ranks, Cut cut);

// Number of keys that the tokens of these stretches see under a causal mask.
int64_t work_of(std::span<const Stretch> stretches, std::span<const int32_t> documents);

// Index in `documents` of the document that contains `token`.
size_t document_at(std::span<const int32_t> documents, int32_t token);

}  // namespace heddle::context
