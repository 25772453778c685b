// Rows cut from concatenated documents.
#include "lib/data/blend/blend_set.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "heddle/base/error.h"
#include "lib/data/blend/sample_index.h"
#include "lib/data/tokens/token_check.h"
#include "lib/data/tokens/token_file.h"
#include "lib/data/tokens/token_header.h"

namespace heddle::megatron {
namespace {

std::filesystem::path with(const std::filesystem::path& prefix, const char* ending) {
  return prefix.string() + ending;
}

std::vector<int64_t> places_of(std::span<const int64_t> lengths) {
  std::vector<int64_t> out(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), out.begin() + 1);
  return out;
}

// Samples of one file's part of a split.
class FilePart {
 public:
  FilePart(const BlendFile& file, const BlendConfig& config, std::optional<int64_t> samples)
      : file_(with(file.prefix, ".bin"), std::nullopt), sequence_(config.sequence) {
    std::vector<int64_t> lengths;
    read_megatron_index(with(file.prefix, ".idx"), file_.bytes(), &lengths);
    const auto count = static_cast<int64_t>(lengths.size());
    const auto parts = config.split.empty() ? std::vector<DocumentRange>(3, {0, count})
                                            : split_documents(config.split, count, config.split_where);
    const DocumentRange range = parts[static_cast<size_t>(config.part)];
    if (range.empty())
      throw Error(ErrorCode::config, config.split_where,
                  "the split '" + config.split + "' gives this set none of the " + std::to_string(count) +
                      " documents of " + file_.path().string(),
                  "give this set a larger share");
    places_ = places_of(lengths);
    const std::span<const int64_t> own = std::span(lengths).subspan(
        static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin));
    index_ = index_samples(own, range.begin, sequence_, samples, config.seed);
    if (index_.shuffle.empty())
      throw Error(ErrorCode::input, file_.path().string(),
                  "its documents have too few tokens for one row of seq_length " + std::to_string(sequence_),
                  "decrease seq_length, or use more data");
    std::vector<int64_t> laid;
    for (const int64_t document : index_.documents) laid.push_back(lengths[static_cast<size_t>(document)]);
    begins_ = places_of(laid);
  }

  int64_t size() const { return static_cast<int64_t>(index_.shuffle.size()); }
  const TokenFile& file() const { return file_; }

  // Reads `sequence` tokens, starting at the first token of the sample or at the second.
  void read(int64_t sample, int64_t skipped_first, int64_t vocabulary, std::span<int64_t> out) const {
    int64_t at = index_.shuffle[static_cast<size_t>(sample)] * sequence_ + skipped_first;
    auto document = std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin() - 1;
    while (!out.empty()) {
      const int64_t skipped = at - begins_[static_cast<size_t>(document)];
      const int64_t left = begins_[static_cast<size_t>(document) + 1] - at;
      const auto taken = std::min(static_cast<size_t>(left), out.size());
      const int64_t number = index_.documents[static_cast<size_t>(document)];
      const int64_t begin = places_[static_cast<size_t>(number)] + skipped;
      file_.read(begin, out.first(taken));
      for (size_t i = 0; i < taken; ++i)
        if (out[i] < 0 || out[i] >= vocabulary)
          throw file_.outside(begin + static_cast<int64_t>(i), out[i], vocabulary);
      out = out.subspan(taken);
      at += static_cast<int64_t>(taken);
      ++document;
    }
  }

 private:
  TokenFile file_;
  int64_t sequence_;
  std::vector<int64_t> places_;  // positions of the documents in the file
  SampleIndex index_;
  std::vector<int64_t> begins_;  // starts of the documents in the concatenation
};

class BlendSet : public IDataset {
 public:
  BlendSet(const BlendConfig& config, int64_t vocabulary)
      : sequence_(config.sequence), vocabulary_(vocabulary) {
    const bool weighted = config.files.size() > 1 && config.files.front().weight > 0;
    if (weighted && !config.samples)
      throw Error(ErrorCode::config, config.split_where,
                  "Using client-specified weights requires client-specified size",
                  "set step_scheduler.max_steps, or a number of samples");
    double sum = 0;
    for (const BlendFile& file : config.files) sum += file.weight;
    std::vector<double> weights;
    int64_t size = 0;
    for (const BlendFile& file : config.files) {
      std::optional<int64_t> wanted = config.samples;
      if (weighted) {
        weights.push_back(file.weight / sum);
        const double share = std::ceil(static_cast<double>(*config.samples) * weights.back());
        size += static_cast<int64_t>(share);
        wanted = static_cast<int64_t>(std::ceil(share * 1.005));
      } else if (config.files.size() > 1) {
        wanted.reset();  // one epoch of each
      }
      parts_.push_back(std::make_unique<FilePart>(file, config, wanted));
    }
    take_turns(std::move(weights), weighted ? size : config.samples.value_or(-1));
  }

  int64_t size() const override { return size_; }
  int64_t length(int64_t) const override { return sequence_; }
  int64_t row_length() const override { return sequence_; }
  bool is_uneven() const override { return false; }
  bool sequential() const override { return true; }  // shuffled already

  void read(int64_t sample, const SampleTarget& to) const override {
    const auto at = static_cast<size_t>(sample);
    const FilePart& part = *parts_[which_.empty() ? 0 : static_cast<size_t>(which_[at])];
    const int64_t own = which_.empty() ? sample : number_[at];
    part.read(own, 0, vocabulary_, to.tokens);
    part.read(own, 1, vocabulary_, to.labels);
  }

  std::string digest() const override {
    std::string out = std::to_string(size_) + " samples of " + std::to_string(sequence_) + " tokens of";
    for (const auto& part : parts_) out += " " + part->file().digest();
    return out;
  }

  std::vector<DataInput> inputs() const override {
    std::vector<DataInput> out;
    for (const auto& part : parts_) {
      out.push_back({part->file().path(), "a token file of the run"});
      out.push_back({std::filesystem::path(part->file().path()).replace_extension(".idx"),
                     "the index of a token file of the run"});
    }
    return out;
  }

  bool verify(DataNotes& notes) const override {
    return std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) {
      return in_vocabulary(noted_range(part->file(), notes), vocabulary_);
    });
  }

 private:
  // size: of the blend; -1: all samples.
  void take_turns(std::vector<double> weights, int64_t size) {
    std::vector<int64_t> counts;
    int64_t all = 0;
    for (const auto& part : parts_) {
      counts.push_back(part->size());
      all += part->size();
    }
    size_ = size < 0 ? all : std::min(size, all);
    if (parts_.size() == 1) return;
    if (weights.empty())
      for (const int64_t count : counts)
        weights.push_back(static_cast<double>(count) / static_cast<double>(all));
    which_ = blend(weights, counts, size_);
    size_ = static_cast<int64_t>(which_.size());
    std::vector<int64_t> next(parts_.size(), 0);
    for (const int32_t part : which_) number_.push_back(next[static_cast<size_t>(part)]++);
  }

  int64_t sequence_, vocabulary_, size_ = 0;
  std::vector<std::unique_ptr<FilePart>> parts_;
  std::vector<int32_t> which_;   // file of each sample; empty: a single file
  std::vector<int64_t> number_;  // index of each sample in its file
};

}  // namespace

std::unique_ptr<IDataset> open_blend(const BlendConfig& config, int64_t vocabulary) {
  return std::make_unique<BlendSet>(config, vocabulary);
}

}  // namespace heddle::megatron
