// MockIterableDataset: samples of uniform tokens, in which each label is the next token.
#include <algorithm>

#include "draws.h"
#include "heddle/model/batch.h"
#include "mock.h"

namespace heddle::mock {
namespace {

constexpr int64_t kDefaultVocabulary = 1024;  // if the model is not known

std::string key_location(const Node& section, const char* key) {
  const Node* value = section.find(key);
  return value != nullptr ? value->where() : section.where();
}

}  // namespace

ConfigSchema<UniformConfig> uniform_schema() {
  using C = UniformConfig;
  return ConfigSchema<C>()
      .field("vocab_size", &C::vocab_size,
             "Tokens are drawn from [0, vocab_size). null: the model's vocabulary size.",
             Range<int64_t>{1, kMost})
      .field("seq_len", &C::seq_len, "Number of tokens per sample.", Range<int64_t>{1, kMost})
      .field("num_samples", &C::num_samples, "Number of samples per epoch.", Range<int64_t>{1, kMost})
      .field("batch_size", &C::batch_size,
             "Number of rows per microbatch. Must be null or step_scheduler.local_batch_size.",
             Range<int64_t>{1, kMost});
}

Uniform::Uniform(UniformConfig config, const Node& section, const DataFacts& facts)
    : config_(config),
      vocabulary_(config.vocab_size.value_or(facts.vocabulary > 0 ? facts.vocabulary : kDefaultVocabulary)),
      seed_(facts.seed) {
  if (facts.vocabulary > 0 && vocabulary_ > facts.vocabulary)
    throw Error(ErrorCode::config, key_location(section, "vocab_size"),
                "vocab_size is " + std::to_string(vocabulary_) + ", but the model's vocabulary has " +
                    std::to_string(facts.vocabulary) + " tokens",
                "remove dataset.vocab_size to use the model's");
  if (config.batch_size && *config.batch_size != facts.local_batch_size)
    throw Error(ErrorCode::config, key_location(section, "batch_size"),
                "batch_size is " + std::to_string(*config.batch_size) + ", but a microbatch has " +
                    std::to_string(facts.local_batch_size) + " rows (step_scheduler.local_batch_size)",
                "remove dataset.batch_size, or set both to the same number");
}

void Uniform::read(int64_t sample, const SampleTarget& to) const {
  const Draws draws(seed_, sample);
  const auto length = static_cast<int64_t>(to.tokens.size());
  for (int64_t i = 0; i < length; ++i) to.tokens[static_cast<size_t>(i)] = draws.below(i, vocabulary_);
  std::copy(to.tokens.begin() + 1, to.tokens.end(), to.labels.begin());
  to.labels.back() = Batch::kIgnore;
}

std::string Uniform::digest() const {
  return std::to_string(config_.num_samples) + " samples of " + std::to_string(config_.seq_len) +
         " uniform tokens below " + std::to_string(vocabulary_) + ", version 1";
}

}  // namespace heddle::mock
