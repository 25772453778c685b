// Data set of a sample file, with labels from its runs.
#include "lib/data/samples/sample_set.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/model/batch.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle {
namespace {

class SampleSet : public IDataset {
 public:
  SampleSet(const std::filesystem::path& file, std::vector<DataInput> inputs, int64_t pack_size,
            int64_t vocabulary, bool has_own_tokenizer)
      : file_(file),
        inputs_(std::move(inputs)),
        description_(read_description(file_)),
        has_own_tokenizer_(has_own_tokenizer),
        filled_(pack_size > 0 ? description_.filled : 0),
        vocabulary_(vocabulary),
        pad_(vocabulary > 0 && file_.header().pad >= vocabulary ? 0
                                                                : std::max<int64_t>(file_.header().pad, 0)),
        cut_(file_.has(SampleFile::kLastIsInput) || file_.has(SampleFile::kLabelsAreInputs) ? 0 : 1) {
    if (file_.size() == 0)
      throw Error(ErrorCode::input, file.string(), "has no samples",
                  "check the split and the filters of the data set");
    inputs_.push_back({file, kPreparedInput});
  }

  int64_t size() const override { return file_.size(); }
  int64_t length(int64_t sample) const override { return std::max({inputs(sample), filled_, int64_t{1}}); }
  int64_t row_length() const override { return 0; }
  bool labels_follow() const override { return !file_.has(SampleFile::kLabelsAreInputs); }

  void read(int64_t sample, const SampleTarget& to) const override {
    const int64_t given = std::max<int64_t>(inputs(sample), 0);
    file_.read(sample, to.tokens.first(static_cast<size_t>(given)));
    std::fill(to.tokens.begin() + given, to.tokens.end(), pad_);
    std::fill(to.labels.begin(), to.labels.end(), Batch::kIgnore);
    const int64_t shift = labels_follow() ? 1 : 0;
    for (const TokenRun& run : file_.runs_of(sample)) {
      const int64_t begin = std::max<int64_t>(run.begin, shift), count = run.end - begin;
      if (count > 0)
        file_.read(sample, to.labels.subspan(static_cast<size_t>(begin - shift), static_cast<size_t>(count)),
                   begin);
    }
  }

  std::string digest() const override {
    const SampleHeader& header = file_.header();
    return std::to_string(header.samples) + " samples, " + std::to_string(header.tokens) + " tokens, " +
           std::to_string(header.token_checksum) + ", " + std::to_string(header.index_checksum);
  }

  DataTokenizer tokenizer() const override {
    return {description_.tokenizer, description_.tokenizer_digest, file_.header().vocabulary,
            file_.header().eos, false};
  }

  std::map<std::string, std::string> settings() const override {
    if (description_.texts.empty()) return {};
    return {{kTextsSetting, description_.texts}};
  }

  std::vector<DataInput> inputs() const override { return inputs_; }

  // Verifies a file once; the result is cached until its modification time changes.
  bool verify(DataNotes& notes) const override {
    const std::string key = std::filesystem::absolute(file_.path()).string();
    const std::string state =
        std::to_string(file_.header().header_checksum) + " " + std::to_string(file_.modified()) + " is whole";
    const auto before = notes.before.find(key);
    if (before == notes.before.end() || before->second != state) file_.verify_tokens();
    notes.now[key] = state;
    // A tokenizer may have more tokens than the model if no sample contains one of them.
    if (vocabulary_ > 0 && file_.header().vocabulary > vocabulary_) verify_vocabulary(key, state, notes);
    return true;
  }

 private:
  void verify_vocabulary(const std::string& key, const std::string& state, DataNotes& notes) const {
    const std::string name = key + ": vocabulary";
    const std::string note = state + ", its tokens are below " + std::to_string(vocabulary_);
    const auto before = notes.before.find(name);
    if (before == notes.before.end() || before->second != note) {
      if (file_.largest_token() >= vocabulary_) refuse_vocabulary();
    }
    notes.now[name] = note;
  }

  [[noreturn]] void refuse_vocabulary() const {
    std::vector<int64_t> tokens;
    for (int64_t sample = 0; sample < file_.size(); ++sample) {
      tokens.resize(static_cast<size_t>(file_.tokens_of(sample)));
      file_.read(sample, tokens);
      const auto beyond =
          std::find_if(tokens.begin(), tokens.end(), [&](int64_t t) { return t >= vocabulary_; });
      if (beyond == tokens.end()) continue;
      throw Error(ErrorCode::input, file_.path().string(),
                  "sample " + std::to_string(sample + 1) + " has the token " + std::to_string(*beyond) +
                      ", but the model's vocabulary size is " + std::to_string(vocabulary_),
                  has_own_tokenizer_
                      ? "the model's own tokenizer has " + std::to_string(file_.header().vocabulary) +
                            " tokens, more than its embedding has rows. Resize the embedding "
                            "(resize_token_embeddings() of transformers) and save the model again, or remove "
                            "rows with this token"
                      : "tokenize the texts with the model's own tokenizer");
    }
    throw Error(ErrorCode::internal, file_.path().string(), "its largest token is in no sample");
  }

  int64_t inputs(int64_t sample) const { return file_.tokens_of(sample) - cut_; }

  SampleFile file_;
  std::vector<DataInput> inputs_;
  SampleDescription description_;
  bool has_own_tokenizer_;
  int64_t filled_, vocabulary_, pad_, cut_;  // cut_: number of last tokens of a sample that are labels only
};

}  // namespace

std::unique_ptr<IDataset> open_samples(const std::filesystem::path& file, std::vector<DataInput> inputs,
                                       int64_t pack_size, int64_t vocabulary, bool has_own_tokenizer) {
  return std::make_unique<SampleSet>(file, std::move(inputs), pack_size, vocabulary, has_own_tokenizer);
}

SampleDescription read_description(const SampleFile& file) {
  const auto json = nlohmann::json::parse(file.description(), nullptr, false);
  if (!json.is_object())
    throw Error(ErrorCode::input, file.path().string(), "its description is not a JSON object",
                "remove the file, and run heddle prepare to make it again");
  const auto text = [&](const char* key) {
    const auto at = json.find(key);
    return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto filled = json.find("filled");
  return {text("name"), text("tokenizer"), text("tokenizer_digest"), text("texts"),
          filled != json.end() && filled->is_number_integer() ? filled->get<int64_t>() : 0};
}

}  // namespace heddle
