// Context parallelism: the pairs of queries and keys that each rank computes under a causal mask, counted.
//   bench_context_work
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "bench/context/offsets.h"
#include "lib/data/packing.h"
#include "plugins/context/sequence.h"

namespace {

using namespace heddle;
using bench::Offsets;
using bench::tensor_of;

// Rows of `length` tokens packed by thd from samples of random length.
std::vector<Offsets> packed_rows(int64_t length, int64_t shortest, int64_t longest, size_t rows) {
  std::mt19937 random(1);
  std::vector<int64_t> lengths(rows * static_cast<size_t>(2 * length / (shortest + longest) + 2));
  for (int64_t& one : lengths) one = shortest + static_cast<int64_t>(random()) % (longest - shortest + 1);
  const Packs packs = pack(lengths, {Packer::thd, length, static_cast<int64_t>(rows)});
  std::vector<Offsets> out;
  for (int64_t i = 0; i < packs.size(); ++i) {
    Offsets& row = out.emplace_back(1, 0);
    for (const int64_t sample : packs[i])
      row.push_back(row.back() + static_cast<int32_t>(lengths[static_cast<size_t>(sample)]));
    if (row.back() < length) row.push_back(static_cast<int32_t>(length));
  }
  return out;
}

// Pairs of a query and a key that `rank` computes with the keys of `other`.
int64_t pairs(const context::Rows& rows, int rank, int other) {
  const at::Tensor seen = rows.visible_keys(rank, other, {});
  return (seen.select(1, 1) - seen.select(1, 0)).sum().item<int64_t>();
}

struct Balance {
  double largest = 0, sum = 0, lockstep = 0;
};

Balance balance_of(const Offsets& documents, int ranks) {
  const int64_t length = documents.back();
  const context::Rows rows(1, length, tensor_of(documents), ranks, context::Cut::balanced);
  Balance out;
  std::vector<std::vector<double>> all(static_cast<size_t>(ranks),
                                       std::vector<double>(static_cast<size_t>(ranks)));
  for (int rank = 0; rank < ranks; ++rank) {
    double own = 0;
    for (int step = 0; step < ranks; ++step)
      own += all[static_cast<size_t>(step)][static_cast<size_t>(rank)] =
          static_cast<double>(pairs(rows, rank, (rank + ranks - step) % ranks));
    out.largest = std::max(out.largest, own);
    out.sum += own;
  }
  for (const std::vector<double>& step : all) out.lockstep += *std::max_element(step.begin(), step.end());
  return out;
}

void print_work() {
  constexpr int64_t kLength = 32768;
  struct Kind {
    const char* name;
    std::vector<Offsets> rows;
  };
  const std::vector<Kind> kinds = {
      {"one document of 32,768 tokens", {{0, kLength}}},
      {"packs of documents of 1 to 512", packed_rows(kLength, 1, 512, 8)},
      {"packs of documents of 16 to 4,096", packed_rows(kLength, 16, 4096, 8)},
      {"packs of documents of 1,024 to 16,384", packed_rows(kLength, 1024, 16384, 8)}};
  std::printf(
      "| rows of 32,768 tokens | ranks | largest / mean, of a step | largest / mean, worst row | each turn "
      "of the ring, largest / mean |\n|---|--:|--:|--:|--:|\n");
  for (const Kind& kind : kinds)
    for (const int ranks : {2, 4, 8}) {
      double worst = 0, lockstep = 0, sum = 0, largest = 0;
      for (const Offsets& row : kind.rows) {
        const Balance one = balance_of(row, ranks);
        worst = std::max(worst, one.largest * ranks / one.sum);
        lockstep += one.lockstep * ranks;
        largest += one.largest * ranks;
        sum += one.sum;
      }
      std::printf("| %s | %d | %.3f | %.3f | %.3f |\n", kind.name, ranks, largest / sum, worst,
                  lockstep / sum);
    }
}

}  // namespace

int main() {
  print_work();
  return 0;
}
