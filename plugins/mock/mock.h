// The mock data sets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/plugin/dataset.h"

namespace heddle::mock {

inline constexpr int64_t kMost = (int64_t{1} << 31) - 1;  // limit of token and sample counts

// Samples of uniform tokens, for benchmarks.
struct UniformConfig {
  std::optional<int64_t> vocab_size;  // null: the model's vocabulary size
  int64_t seq_len = 1024, num_samples = 1000000;
  std::optional<int64_t> batch_size;  // null: local_batch_size
};

ConfigSchema<UniformConfig> uniform_schema();

class Uniform : public IDataset {
 public:
  Uniform(UniformConfig config, const Node& section, const DataFacts& facts);
  int64_t size() const override { return config_.num_samples; }
  int64_t length(int64_t) const override { return config_.seq_len; }
  int64_t row_length() const override { return config_.seq_len; }
  bool is_uneven() const override { return false; }
  void read(int64_t sample, const SampleTarget& to) const override;
  std::string digest() const override;
  bool uses_seed() const override { return true; }

 private:
  UniformConfig config_;
  int64_t vocabulary_;
  uint64_t seed_;
};

// Sentences of random words and an end token, for tests of rows of unequal length.
struct SentencesConfig {
  int64_t num_sentences = 10, vocab_size = 100, max_sentence_len = 64, seed = 0;
  double mean_len = 20, std_len = 6;
};

ConfigSchema<SentencesConfig> sentences_schema();

class Sentences : public IDataset {
 public:
  Sentences(SentencesConfig config, const Node& section, const DataFacts& facts);
  int64_t size() const override { return config_.num_sentences; }
  int64_t length(int64_t sample) const override { return lengths_[static_cast<size_t>(sample)]; }
  int64_t row_length() const override { return 0; }
  void read(int64_t sample, const SampleTarget& to) const override;
  std::string digest() const override;
  bool labels_follow() const override { return false; }
  DataTokenizer tokenizer() const override;

 private:
  SentencesConfig config_;
  std::vector<int64_t> lengths_;  // including the end token
};

}  // namespace heddle::mock
