// A data set: sample i counts upwards from token i, and the labels are the next tokens.
#include "heddle/model/batch.h"
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/entry_point.h"

namespace hello_plugin {

struct Config {
  int64_t seq_len = 64;  // the initializers are the defaults
  int64_t num_samples = 256;
};

heddle::ConfigSchema<Config> schema() {
  return heddle::ConfigSchema<Config>()
      .field("seq_len", &Config::seq_len, "Number of tokens per sample.", heddle::Range<int64_t>{2, 1 << 20})
      .field("num_samples", &Config::num_samples, "Number of samples per epoch.",
             heddle::at_least<int64_t>(1));
}

class Hello : public heddle::IDataset {
 public:
  // The keys have been checked. section: for locations in further errors. A data set that reads files opens
  // them here, and throws heddle::MissingData if they are missing.
  Hello(Config config, const heddle::Node& /*section*/, const heddle::DataFacts& facts)
      : config_(config), vocabulary_(facts.vocabulary > 0 ? facts.vocabulary : 256) {}

  int64_t size() const override { return config_.num_samples; }
  int64_t length(int64_t /*sample*/) const override { return config_.seq_len; }
  int64_t row_length() const override { return config_.seq_len; }
  bool is_uneven() const override { return false; }

  // Depends only on the index: any rank reads any sample, in any order and from several threads.
  void read(int64_t sample, const heddle::SampleTarget& to) const override {
    for (size_t i = 0; i < to.tokens.size(); ++i)
      to.tokens[i] = (sample + static_cast<int64_t>(i)) % vocabulary_;
    for (size_t i = 0; i + 1 < to.labels.size(); ++i) to.labels[i] = to.tokens[i + 1];
    to.labels.back() = heddle::Batch::kIgnore;  // the last token has no next token
  }

  // A checkpoint stores the digest, and a run that resumes with different data is refused.
  std::string digest() const override {
    return "counting, " + std::to_string(config_.num_samples) + " samples of " +
           std::to_string(config_.seq_len) + " tokens below " + std::to_string(vocabulary_);
  }

 private:
  Config config_;
  int64_t vocabulary_;
};

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "dataset hello") {
  plugin.dataset<hello_plugin::Hello>("hello", hello_plugin::schema(), "seq_len");
}
