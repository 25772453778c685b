// mock.build_unpacked_dataset: sentences of random words, with labels that equal the tokens.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "draws.h"
#include "mock.h"

namespace heddle::mock {
namespace {

constexpr int64_t kEnd = 1, kFirstWord = 2;
constexpr int64_t kLengthDraw = -2;  // positions of the two draws of a length; words use positions from 0

// Draws from a normal distribution (Box and Muller).
double normal(const Draws& draws) {
  return std::sqrt(-2 * std::log(draws.unit(kLengthDraw))) *
         std::cos(2 * std::numbers::pi * draws.unit(kLengthDraw + 1));
}

}  // namespace

ConfigSchema<SentencesConfig> sentences_schema() {
  using C = SentencesConfig;
  return ConfigSchema<C>()
      .field("num_sentences", &C::num_sentences, "Number of samples.", Range<int64_t>{1, kMost})
      .field("mean_len", &C::mean_len, "Mean number of words per sentence.")
      .field("std_len", &C::std_len, "Standard deviation of the number of words.")
      .field("vocab_size", &C::vocab_size, "Words are drawn from [2, vocab_size). Token 1 ends a sentence.",
             Range<int64_t>{3, kMost})
      .field("max_sentence_len", &C::max_sentence_len, "Maximum number of words per sentence.",
             Range<int64_t>{1, kMost - 1})
      .field("seed", &C::seed, "Seed of this data set; independent of the run's seed.");
}

Sentences::Sentences(SentencesConfig config, const Node& section, const DataFacts& facts) : config_(config) {
  if (facts.vocabulary > 0 && config.vocab_size > facts.vocabulary) {
    const Node* given = section.find("vocab_size");
    throw Error(ErrorCode::config, given != nullptr ? given->where() : section.where(),
                "vocab_size is " + std::to_string(config.vocab_size) + ", but the model's vocabulary has " +
                    std::to_string(facts.vocabulary) + " tokens",
                "set dataset.vocab_size to at most " + std::to_string(facts.vocabulary));
  }
  const auto most = static_cast<double>(config.max_sentence_len);
  for (int64_t i = 0; i < config.num_sentences; ++i) {
    const double drawn =
        config.mean_len + config.std_len * normal(Draws(static_cast<uint64_t>(config.seed), i));
    lengths_.push_back(static_cast<int64_t>(std::clamp(std::trunc(drawn), 1.0, most)) + 1);
  }
}

void Sentences::read(int64_t sample, const SampleTarget& to) const {
  const Draws draws(static_cast<uint64_t>(config_.seed), sample);
  for (size_t i = 0; i + 1 < to.tokens.size(); ++i)
    to.tokens[i] = kFirstWord + draws.below(static_cast<int64_t>(i), config_.vocab_size - kFirstWord);
  to.tokens.back() = kEnd;
  std::copy(to.tokens.begin(), to.tokens.end(), to.labels.begin());
}

std::string Sentences::digest() const {
  return std::to_string(config_.num_sentences) + " sentences of " + std::to_string(config_.mean_len) +
         " +- " + std::to_string(config_.std_len) + " words, at most " +
         std::to_string(config_.max_sentence_len) + ", of " + std::to_string(config_.vocab_size) + ", seed " +
         std::to_string(config_.seed) + ", version 1";
}

DataTokenizer Sentences::tokenizer() const {
  return {"mock words", "", config_.vocab_size, kEnd, false};
}

}  // namespace heddle::mock
