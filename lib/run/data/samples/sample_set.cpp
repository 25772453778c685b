// Samples of a file, with the labels that its runs say.
#include "lib/run/data/samples/sample_set.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/model/batch.h"
#include "lib/checkpoint/safetensors/checksum.h"

namespace heddle {
namespace {

class SampleSet : public IDataset {
 public:
  SampleSet(const std::filesystem::path& file, std::vector<DataInput> inputs, int64_t pack_size)
      : file_(file),
        inputs_(std::move(inputs)),
        description_(read_description(file_)),
        filled_(pack_size > 0 ? description_.filled : 0),
        cut_(file_.has(SampleFile::kLastIsInput) || file_.has(SampleFile::kLabelsAreInputs) ? 0 : 1) {
    if (file_.size() == 0)
      throw Error(ErrorCode::input, file.string(), "has no samples",
                  "the data set gave no row: look at its split and its filters");
    inputs_.push_back({file, "prepared samples of the run"});
  }

  int64_t size() const override { return file_.size(); }
  int64_t length(int64_t sample) const override { return std::max({inputs(sample), filled_, int64_t{1}}); }
  int64_t row_length() const override { return 0; }
  bool labels_follow() const override { return !file_.has(SampleFile::kLabelsAreInputs); }

  void read(int64_t sample, const SampleTarget& to) const override {
    const int64_t given = std::max<int64_t>(inputs(sample), 0);
    file_.read(sample, to.tokens.first(static_cast<size_t>(given)));
    std::fill(to.tokens.begin() + given, to.tokens.end(), std::max<int64_t>(file_.header().pad, 0));
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

  std::vector<DataInput> inputs() const override { return inputs_; }

  // Once for each file, by its time of change.
  bool verify(DataNotes& notes) const override {
    const std::string key = std::filesystem::absolute(file_.path()).string();
    const std::string state =
        std::to_string(file_.header().header_checksum) + " " + std::to_string(file_.modified()) + " is whole";
    const auto before = notes.before.find(key);
    if (before == notes.before.end() || before->second != state) file_.verify_tokens();
    notes.now[key] = state;
    return true;
  }

 private:
  int64_t inputs(int64_t sample) const { return file_.tokens_of(sample) - cut_; }

  SampleFile file_;
  std::vector<DataInput> inputs_;
  SampleDescription description_;
  int64_t filled_, cut_;  // the last tokens of a sample that are labels only
};

}  // namespace

std::unique_ptr<IDataset> open_samples(const std::filesystem::path& file, std::vector<DataInput> inputs,
                                       int64_t pack_size) {
  return std::make_unique<SampleSet>(file, std::move(inputs), pack_size);
}

SampleDescription read_description(const SampleFile& file) {
  const auto json = nlohmann::json::parse(file.description(), nullptr, false);
  if (!json.is_object())
    throw Error(ErrorCode::input, file.path().string(), "its description is no JSON object",
                "remove it: heddle prepare makes it again");
  const auto text = [&](const char* key) {
    const auto at = json.find(key);
    return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto filled = json.find("filled");
  return {text("name"), text("tokenizer"), text("tokenizer_digest"),
          filled != json.end() && filled->is_number_integer() ? filled->get<int64_t>() : 0};
}

}  // namespace heddle
