// A data set of consecutive numbers, correct unless HEDDLE_FAULT selects a fault.
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "heddle/model/batch.h"
#include "heddle/plugin/dataset.h"
#include "heddle/plugin/entry_point.h"

namespace heddle::faulty_dataset {
namespace {

bool is(const char* fault) {
  const char* given = std::getenv("HEDDLE_FAULT");
  return given != nullptr && std::string(given) == fault;
}

struct Config {
  int64_t seq_len = 8, offset = 0;
  std::optional<std::string> file;
};

std::atomic<int64_t> made{0};

class Faulty : public IDataset {
 public:
  Faulty(Config config, const Node& section, const DataFacts& facts)
      : length_(config.seq_len),
        offset_(config.offset),
        seed_(is("seed_changes_samples") ? static_cast<int64_t>(facts.seed % 100) : 0),
        vocabulary_(facts.vocabulary),
        number_(made++),
        file_(config.file) {
    if (is("throws")) throw std::runtime_error("no disk");
    if (is("no_file")) throw MissingData({{section.where(), "no file matches 'a'"}});
  }
  int64_t size() const override { return is("empty") ? 0 : 40; }
  int64_t length(int64_t sample) const override {
    if (is("no_length")) return 0;
    return is("long") && sample == 39 ? length_ + 1 : length_;
  }
  int64_t row_length() const override { return length_; }
  bool is_uneven() const override { return is("long"); }
  bool sequential() const override { return is("sequential"); }
  DataTokenizer tokenizer() const override {
    return {"words", "", is("large_tokenizer") ? vocabulary_ + 1 : 0, -1, false};
  }
  bool has_documents() const override { return is("documents"); }
  void read(int64_t sample, const SampleTarget& to) const override {
    const int64_t before = is("skips_a_token") ? to.tokens[2] : 0;
    const int64_t begin = offset_ + seed_ +
                          (is("differs")        ? sample + number_
                           : is("counts_reads") ? sample + reads_++
                                                : sample);
    for (size_t i = 0; i < to.tokens.size(); ++i) to.tokens[i] = begin + static_cast<int64_t>(i);
    for (size_t i = 0; i < to.labels.size(); ++i) to.labels[i] = begin + static_cast<int64_t>(i) + 1;
    if (is("skips_a_token")) to.tokens[2] = before;
    if (is("outside")) to.tokens[3] = vocabulary_;
    if (is("outside_label")) to.labels.back() = vocabulary_;
    if (is("unshifted")) to.labels[2] = to.tokens[2];
    if (is("no_labels")) std::fill(to.labels.begin(), to.labels.end(), Batch::kIgnore);
    if (is("documents")) to.begin_document(length_);
    if (is("secret_documents")) to.begin_document(2);
    if (is("shares")) share(to);
    if (is("one_buffer")) copy_from_one_buffer(to);
  }
  std::string digest() const override {
    if (is("digest_is_constant")) return "counting";
    const std::string from = is("digest_lacks_a_field") ? "" : " from " + std::to_string(offset_);
    return is("digest") ? std::to_string(number_) : "counting " + std::to_string(length_) + from;
  }
  std::vector<DataInput> inputs() const override {
    if (!file_ || is("no_inputs")) return {};
    return {{is("names_another_input") ? *file_ + ".bak" : *file_, "a file of the set"}};
  }

 private:
  // Passes a token through a member that other threads overwrite (a data race).
  void share(const SampleTarget& to) const {
    shared_ = to.tokens[0];
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    to.tokens[0] = shared_;
  }

  // Copies tokens from a static buffer that another thread may overwrite before the copy (a data race).
  static void copy_from_one_buffer(const SampleTarget& to) {
    static std::vector<int64_t> buffer(1 << 12);
    std::iota(buffer.begin(), buffer.end(), to.tokens[0]);
    std::copy_n(buffer.begin(), to.tokens.size(), to.tokens.begin());
  }

  int64_t length_, offset_, seed_, vocabulary_, number_;
  std::optional<std::string> file_;
  mutable std::atomic<int64_t> reads_{0}, shared_{0};
};

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("seq_len", &Config::seq_len, "Tokens of a sample.", at_least<int64_t>(4))
      .field("offset", &Config::offset, "First token of the first sample.", Range<int64_t>{0, 1000})
      .field("file", &Config::file, "A file that is read.");
}

}  // namespace
}  // namespace heddle::faulty_dataset

HEDDLE_PLUGIN("faulty_dataset", "1.0.0", "dataset faulty") {
  using namespace heddle;
  auto& offered = plugin.dataset<faulty_dataset::Faulty>("faulty", faulty_dataset::schema(), "seq_len");
  if (faulty_dataset::is("no_maker")) offered.make = {};
  if (faulty_dataset::is("null"))
    offered.make = [](const Node&, const DataFacts&) -> std::unique_ptr<IDataset> { return nullptr; };
}
