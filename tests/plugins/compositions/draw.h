// Random choices that are equal with every standard library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

namespace heddle::tests {

class Draw {
 public:
  explicit Draw(uint64_t seed) : numbers_(seed) {}

  int below(int count) { return static_cast<int>(numbers_() % static_cast<uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }
  template <typename T>
  T of(const std::vector<T>& values) {
    return values[below(static_cast<int>(values.size()))];
  }
  int of(std::initializer_list<int> values) { return of(std::vector<int>(values)); }
  std::string of(std::initializer_list<const char*> values) {
    return of(std::vector<std::string>(values.begin(), values.end()));
  }

 private:
  std::mt19937_64 numbers_;  // the standard fixes its sequence
};

// Models with sizes that have small divisors; `experts`: mixtures.
struct DrawnModel {
  std::string config;  // keys of a config.json, in braces
  bool experts = false;
  bool tied = false;
  int layers = 0, vocabulary = 0;
};
// `by_sixteen`: sizes that fp8 products support.
DrawnModel draw_model(Draw& draw, bool by_sixteen);

}  // namespace heddle::tests
