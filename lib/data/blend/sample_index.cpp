// Builds epochs, shuffles with NumPy's generator, and blends.
#include "lib/data/blend/sample_index.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::megatron {
namespace {

// numpy.random.RandomState(seed).shuffle (legacy): Fisher-Yates with masked rejection sampling.
class NumpyShuffle {
 public:
  explicit NumpyShuffle(uint32_t seed) : random_(seed) {}

  void operator()(std::span<int64_t> values) {
    for (size_t i = values.size(); i-- > 1;) std::swap(values[i], values[draw(i)]);
  }

 private:
  uint64_t draw(uint64_t most) {
    uint64_t mask = most;
    for (const int shift : {1, 2, 4, 8, 16, 32}) mask |= mask >> shift;
    uint64_t value;
    do {
      value = most <= 0xffffffffu ? random_() : uint64_t{random_()} << 32 | random_();
    } while ((value &= mask) > most);
    return value;
  }

  std::mt19937 random_;
};

std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> out;
  std::string word;
  for (const char letter : text + " ") {
    if ((letter >= '0' && letter <= '9') || letter == '.') {
      word += letter;
    } else if (!word.empty()) {
      out.push_back(std::strtod(std::exchange(word, "").c_str(), nullptr));
    }
  }
  return out;
}

void append_documents(std::vector<int64_t>& to, int64_t first, size_t count, int64_t epochs) {
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    for (size_t i = 0; i < count; ++i) to.push_back(first + static_cast<int64_t>(i));
}

}  // namespace

std::vector<DocumentRange> split_documents(const std::string& split, int64_t documents,
                                           const std::string& where) {
  std::vector<double> parts = numbers_in(split);
  parts.resize(3, 0.0);
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  if (!(sum > 0))
    throw Error(ErrorCode::config, where, "no part of the split '" + split + "' is above 0",
                "give three numbers for train, validation and test: split: '900,50,50'");
  std::vector<DocumentRange> out;
  double done = 0;
  int64_t begin = 0;
  for (const double part : parts) {
    done += part / sum;
    const auto end = static_cast<int64_t>(std::nearbyint(done * static_cast<double>(documents)));
    out.push_back({begin, std::max(begin, end)});
    begin = out.back().end;
  }
  return out;
}

SampleIndex index_samples(std::span<const int64_t> lengths, int64_t first, int64_t sequence,
                          std::optional<int64_t> wanted, uint32_t seed) {
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  SampleIndex out;
  if (tokens <= 0) return out;
  const int64_t asked = wanted ? *wanted * sequence + 1 : 1;
  const int64_t epochs = std::max<int64_t>(1, (asked + tokens - 1) / tokens);
  // The last epoch is shuffled separately if few of its samples are needed.
  const int64_t before = epochs > 1 ? ((epochs - 1) * tokens - 1) / sequence : 0;
  const int64_t an_epoch = (tokens - 1) / sequence;
  const bool separate =
      epochs > 1 && *wanted - before < static_cast<int64_t>(0.80 * static_cast<double>(an_epoch));
  NumpyShuffle shuffle(seed);
  append_documents(out.documents, first, lengths.size(), separate ? epochs - 1 : epochs);
  shuffle(out.documents);
  if (separate) {
    const size_t done = out.documents.size();
    append_documents(out.documents, first, lengths.size(), 1);
    shuffle(std::span(out.documents).subspan(done));
  }
  out.shuffle.resize(static_cast<size_t>((epochs * tokens - 1) / sequence));
  std::iota(out.shuffle.begin(), out.shuffle.end(), int64_t{0});
  const auto parted = static_cast<size_t>(separate ? before : 0);
  if (separate) shuffle(std::span(out.shuffle).first(parted));
  shuffle(std::span(out.shuffle).subspan(parted));
  return out;
}

std::vector<int32_t> blend(std::span<const double> weights, std::span<const int64_t> counts, int64_t size) {
  std::vector<int32_t> out;
  std::vector<int64_t> taken(weights.size(), 0);
  for (int64_t sample = 0; sample < size; ++sample) {
    int32_t next = -1;
    double most = 0;
    for (size_t set = 0; set < weights.size(); ++set) {
      if (taken[set] == counts[set]) continue;
      const double lag =
          weights[set] * static_cast<double>(std::max<int64_t>(sample, 1)) - static_cast<double>(taken[set]);
      if (next < 0 || lag > most) {
        most = lag;
        next = static_cast<int32_t>(set);
      }
    }
    if (next < 0) break;
    ++taken[static_cast<size_t>(next)];
    out.push_back(next);
  }
  return out;
}

}  // namespace heddle::megatron
