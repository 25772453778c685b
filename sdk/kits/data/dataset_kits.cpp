// The kits of a data set: its properties, the samples it writes, and the batches of ranks.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../given_fields.h"
#include "../kind_kits.h"
#include "../model/small_keys.h"
#include "../plugin_kit.h"
#include "heddle/model/batch.h"
#include "heddle/plugin/dataset.h"
#include "lib/data/batches.h"
#include "lib/testing/whole_tensors.h"
#include "prepared_set.h"

namespace heddle::kits {
namespace {

constexpr int64_t kVocabulary = 1 << 17, kMostSamples = 500, kBatch = 2;

struct ReadSample {
  std::vector<int64_t> tokens, labels;
  std::vector<int32_t> documents;
  bool operator==(const ReadSample&) const = default;
};

std::string sample_text(int64_t sample) {
  return "sample " + std::to_string(sample);
}

// Reads a sample into tokens and labels that contain `fill` before.
ReadSample read(const IDataset& set, int64_t sample, int64_t fill = -7) {
  const auto length = static_cast<size_t>(set.length(sample));
  ReadSample out{std::vector(length, fill), std::vector(length, fill), {}};
  set.read(sample, {out.tokens, out.labels, out.documents, 0});
  return out;
}

// The checks of one data set with the given fields.
class DatasetKits {
 public:
  DatasetKits(const OfferedDataset& offered, const CheckedPlugin& plugin)
      : offered_(offered), fields_(fields_of(offered, plugin)), registry_(plugin.registry) {
    facts_.vocabulary = kVocabulary;
    facts_.local_batch_size = kBatch;
  }

  void begin() {
    std::unique_ptr<IDataset> set;
    try {
      set = make();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::plugin_failed) throw;
      throw NotRun{"it refuses these fields: " + error.message() + "; set other fields with --fields"};
    }
    if (set->size() < 1) found("size() is " + std::to_string(set->size()));
    const int64_t count = std::min(set->size(), kMostSamples);
    for (int64_t i = 0; i < count; ++i)
      samples_.push_back(i * (set->size() - 1) / std::max<int64_t>(count - 1, 1));
    set_ = std::move(set);
  }

  std::string read_text() const { return std::to_string(samples_.size()) + " samples are read"; }
  bool is_made() const { return set_ != nullptr; }

  std::string lengths() const {
    const int64_t row = set_->row_length();
    int64_t longest = 0;
    for (const int64_t sample : samples_) {
      const int64_t length = set_->length(sample);
      if (length < 1) found(sample_text(sample) + " has " + std::to_string(length) + " tokens");
      if (row > 0 && length > row)
        found(sample_text(sample) + " has " + std::to_string(length) + " tokens, but row_length() is " +
              std::to_string(row));
      if (!set_->is_uneven() && length != row)
        found(sample_text(sample) + " has " + std::to_string(length) +
              " tokens, but is_uneven() is false with rows of " + std::to_string(row));
      longest = std::max(longest, length);
    }
    if (set_->longest() < longest)
      found("longest() is " + std::to_string(set_->longest()) + ", but a sample has " +
            std::to_string(longest));
    return std::to_string(set_->size()) + " samples of at most " + std::to_string(set_->longest()) +
           " tokens";
  }

  std::string writes_everything() const {
    for (const int64_t sample : samples_)
      if (!(read(*set_, sample, -7) == read(*set_, sample, -8)))
        found(sample_text(sample) + ": read() does not write all tokens and labels");
    return std::to_string(samples_.size()) + " samples";
  }

  std::string reads_the_same_twice() {
    const std::unique_ptr<IDataset> again = make();
    if (again->size() != set_->size())
      found("size() is " + std::to_string(set_->size()) + ", then " + std::to_string(again->size()));
    for (const int64_t sample : samples_) compare(*again, sample, "a second set of the same section");
    if (again->digest() != set_->digest()) found("digest() differs between two sets of the same section");
    if (set_->digest().empty()) found("digest() is empty");
    if (again->settings() != set_->settings())
      found("settings() differs between two sets of the same section");
    return set_->digest();
  }

  // Checks that digest() or settings() change if a field changes the samples. Otherwise a run would resume
  // with other data.
  std::string tells_other_samples_apart() const {
    if (offered_.texts) throw NotRun{"heddle computes the digest of prepared texts"};
    int told = 0;
    const Node values = offered_.resolve(fields_).values;
    for (const FieldInfo& field : offered_.fields) {
      const Node* now = values.find(field.key);
      for (const Node& changed : other_values(field, now == nullptr ? Node() : *now)) {
        std::unique_ptr<IDataset> set;
        try {
          set = offered_.make(fields_.with(field.key, changed), facts_);
        } catch (const Error& error) {
          if (error.code() == ErrorCode::plugin_failed) throw;
          continue;  // the value is refused
        }
        if (set == nullptr || has_same_samples(*set)) continue;
        if (set->digest() == set_->digest() && set->settings() == set_->settings())
          found("with " + field.key + ": " + changed.written() +
                " the samples change, but digest() and settings() do not: a run would resume with other "
                "data");
        ++told;
        break;
      }
    }
    DataFacts facts = facts_;
    facts.seed += 1;
    const std::unique_ptr<IDataset> seeded = offered_.make(fields_, facts);
    if (!has_same_samples(*seeded) && !set_->uses_seed() && seeded->digest() == set_->digest())
      found("another seed of the run changes the samples, but uses_seed() is false");
    return std::to_string(told) + " fields change samples";
  }

  // Checks that inputs() lists each file that a field names, so that no output of a run replaces it.
  std::string names_its_inputs() const {
    namespace fs = std::filesystem;
    std::vector<fs::path> named;
    const auto add = [&](const Node& value) {
      std::error_code ignored;
      if (value.kind() == Node::Kind::text && fs::is_regular_file(value.as_text(), ignored))
        named.emplace_back(value.as_text());
    };
    for (const auto& [key, value] : fields_.entries()) {
      add(value);
      if (value.is_list())
        for (const Node& item : value.items()) add(item);
    }
    if (named.empty()) throw NotRun{"no field names a file; set one with --fields"};
    const std::vector<DataInput> inputs = set_->inputs();
    for (const fs::path& file : named)
      if (std::none_of(inputs.begin(), inputs.end(), [&](const DataInput& input) {
            return fs::weakly_canonical(input.file) == fs::weakly_canonical(file);
          }))
        found("it reads '" + file.string() +
              "', but inputs() does not list it: an output of a run could replace the file");
    return std::to_string(named.size()) + " files";
  }

  std::string reads_in_any_order() const {
    std::vector<ReadSample> forward;
    for (const int64_t sample : samples_) forward.push_back(read(*set_, sample));
    for (size_t i = samples_.size(); i-- > 0;)
      if (!(read(*set_, samples_[i]) == forward[i]))
        found(sample_text(samples_[i]) + " differs when samples are read in another order");
    return std::to_string(samples_.size()) + " samples, backwards";
  }

  std::string reads_from_threads() const {
    std::vector<ReadSample> alone;
    for (const int64_t sample : samples_) alone.push_back(read(*set_, sample));
    constexpr size_t kThreads = 4;
    // Reading all samples takes less time than starting a thread.
    constexpr std::chrono::milliseconds kTime{200};
    std::vector<std::string> faults(kThreads);
    std::vector<std::thread> threads;
    std::barrier together(kThreads);
    for (size_t thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        together.arrive_and_wait();
        const auto end = std::chrono::steady_clock::now() + kTime;
        try {
          for (size_t i = 0; faults[thread].empty(); ++i) {
            if (i >= samples_.size() && std::chrono::steady_clock::now() >= end) break;
            const size_t at = (i + thread * 7) % samples_.size();
            if (!(read(*set_, samples_[at]) == alone[at]))
              faults[thread] = sample_text(samples_[at]) + " differs when four threads read";
          }
        } catch (const std::exception& error) {
          faults[thread] = error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& fault : faults)
      if (!fault.empty()) found(fault);
    return std::to_string(kThreads) + " threads";
  }

  std::string tokens() const {
    for (const int64_t sample : samples_) {
      const ReadSample one = read(*set_, sample);
      for (const int64_t token : one.tokens) inside(sample, "the token ", token);
      for (const int64_t label : one.labels)
        if (label != Batch::kIgnore) inside(sample, "the label ", label);
    }
    return "below " + std::to_string(kVocabulary);
  }

  std::string labels() const {
    int64_t counted = 0;
    for (const int64_t sample : samples_) {
      const ReadSample one = read(*set_, sample);
      for (size_t j = 0; j < one.labels.size(); ++j) {
        if (one.labels[j] == Batch::kIgnore) continue;
        ++counted;
        // The last label may be a token that is not in the sample.
        if (!set_->labels_follow() || j + 1 == one.tokens.size() || one.labels[j] == one.tokens[j + 1])
          continue;
        found(sample_text(sample) + ": label " + std::to_string(j) + " is " + std::to_string(one.labels[j]) +
              ", but the next token is " + std::to_string(one.tokens[j + 1]) +
              "; a label must be the next token or -100, unless labels_follow() returns false");
      }
    }
    if (counted == 0) found("every label of " + std::to_string(samples_.size()) + " samples is ignored");
    return std::to_string(counted) + " labels";
  }

  std::string documents() const {
    for (const int64_t sample : samples_) {
      const ReadSample one = read(*set_, sample);
      if (!one.documents.empty() && !set_->has_documents())
        found(sample_text(sample) + " begins documents, but has_documents() is false");
      int32_t last = 0;
      for (const int32_t begin : one.documents) {
        if (begin <= last || begin >= static_cast<int32_t>(one.tokens.size()))
          found(sample_text(sample) + ": a document begins at " + std::to_string(begin) + ", after one at " +
                std::to_string(last));
        last = begin;
      }
    }
    return set_->has_documents() ? "several documents in a sample" : "each sample is one document";
  }

  // Checks that a step has the same rows with any number of ranks.
  std::string batches(const std::vector<int>& ranks) {
    const heddle::Rows rows{std::shared_ptr<const IDataset>(make())};
    const int64_t step = 6 * kBatch, steps = std::min<int64_t>(3, std::max<int64_t>(1, rows.size() / step));
    for (const int64_t epoch : {0, 1}) {
      const SampleOrder order(rows.size(), Shuffle::on, facts_.seed, epoch);
      for (int64_t i = 0; i < steps; ++i) {
        const int64_t begin = i * step, end = std::min(begin + step, rows.size());
        const auto alone = rows_of_step(rows, order, begin, end, 1);
        for (const int each : ranks)
          if (rows_of_step(rows, order, begin, end, each) != alone)
            found("step " + std::to_string(i) + " has other samples on " + std::to_string(each) + " ranks");
      }
    }
    return std::to_string(steps) + " steps of " + std::to_string(step) + " samples, each begun separately";
  }

 private:
  bool has_same_samples(const IDataset& set) const {
    if (set.size() != set_->size()) return false;
    return std::all_of(samples_.begin(), samples_.end(),
                       [&](int64_t sample) { return read(*set_, sample) == read(set, sample); });
  }

  // Creates the data set. A text data set is prepared again each time, with another number of threads.
  std::unique_ptr<IDataset> make() const {
    if (offered_.texts) return prepared_set(offered_, fields_, facts_, registry_, 1 + made_++ % 2);
    return offered_.make(fields_, facts_);
  }

  void compare(const IDataset& other, int64_t sample, const std::string& what) const {
    if (!(read(*set_, sample) == read(other, sample))) found(sample_text(sample) + " differs in " + what);
  }

  void inside(int64_t sample, const std::string& what, int64_t token) const {
    if (token < 0 || token >= kVocabulary)
      found(sample_text(sample) + " has " + what + std::to_string(token) + ", but the vocabulary has " +
            std::to_string(kVocabulary));
  }

  // Returns the number of tokens in the row without padding.
  static int64_t text_of(const Batch& batch, int64_t row) {
    const int64_t length = batch.tokens.size(1);
    if (!batch.padding.defined()) return length;
    const bool* fills = batch.padding.const_data_ptr<bool>() + row * length;
    return std::find(fills, fills + length, true) - fills;
  }

  // Returns tokens and labels of each row with a sample, from readers that begin at this step as in a resumed
  // run.
  std::vector<std::vector<int64_t>> rows_of_step(const heddle::Rows& rows, const SampleOrder& order,
                                                 int64_t begin, int64_t end, int ranks) const {
    std::vector<std::vector<int64_t>> out;
    for (int rank = 0; rank < ranks; ++rank) {
      Batches batches(rows, {kBatch, ranks, rank}, kVocabulary);
      for (const Batch& batch : batches.read(order, begin, end))
        for (int64_t row = 0; row < batch.tokens.size(0); ++row) {
          const int64_t text = text_of(batch, row);
          const auto values = [&](const at::Tensor& x) {
            const int64_t* from = x.const_data_ptr<int64_t>() + row * x.size(1);
            return std::vector<int64_t>(from, from + text);
          };
          if (text == 0) continue;
          std::vector<int64_t> both = values(batch.tokens), labels = values(batch.labels);
          both.insert(both.end(), labels.begin(), labels.end());
          out.push_back(std::move(both));
        }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  const OfferedDataset& offered_;
  Node fields_;
  PluginRegistry& registry_;
  mutable int made_ = 0;  // text data sets prepared so far
  DataFacts facts_;
  std::unique_ptr<IDataset> set_;
  std::vector<int64_t> samples_;  // indices of the samples that are read
};

void check_dataset(const OfferedSchema& schema, const CheckedPlugin& plugin, Attempts& attempt) {
  const auto& offered = static_cast<const OfferedDataset&>(schema);
  run_schema_kits("dataset", offered, attempt);
  const auto kits = std::make_shared<DatasetKits>(offered, plugin);
  const std::string thing = "dataset '" + offered.name + "': ";
  const auto run = [&](const std::string& rule, const auto& kit) {
    attempt.training(thing + rule, [&] {
      if (!kits->is_made()) throw NotRun{"the data set was not created"};
      return kit();
    });
  };
  attempt(thing + "created from its section and the facts of the run", [&] {
    kits->begin();
    return kits->read_text();
  });
  run("length(), row_length(): every sample has tokens and fits its row", [&] { return kits->lengths(); });
  run("read(): writes every token and every label", [&] { return kits->writes_everything(); });
  run("two sets of the same section are equal, with the same digest()",
      [&] { return kits->reads_the_same_twice(); });
  run("digest(), settings(), uses_seed(): change if the samples change",
      [&] { return kits->tells_other_samples_apart(); });
  run("inputs(): lists each file that a field names", [&] { return kits->names_its_inputs(); });
  run("read(): depends only on the index, in any order", [&] { return kits->reads_in_any_order(); });
  run("read(): from several threads at once", [&] { return kits->reads_from_threads(); });
  run("read(): tokens and labels are in the vocabulary", [&] { return kits->tokens(); });
  run("read(): label j is token j + 1 of the sample or -100", [&] { return kits->labels(); });
  run("begin_document(): ascending positions inside the sample", [&] { return kits->documents(); });
  run("a step has the same samples on any number of ranks, also after resuming",
      [&] { return kits->batches(plugin.options.ranks); });
}

const KindKits kDataset(OfferedDataset::kKind, check_dataset, {.on_device = false});

}  // namespace
}  // namespace heddle::kits
