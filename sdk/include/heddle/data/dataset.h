// The interface of data sets: samples of tokens with labels, read by their index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/export.h"

namespace heddle {

// What the engine knows of the run when a data set is made.
struct DataFacts {
  int64_t vocabulary = 0;        // of the model; every token is below it. 0: not known
  uint64_t seed = 42;            // of the run
  int64_t local_batch_size = 1;  // rows of a microbatch
  int64_t pack_size = 0;         // tokens of the rows that samples are packed into; 0: each sample is a row
  // Samples that the run reads of it: global_batch_size for each step, for a validation set one batch for
  // each validation. 0: not known.
  int64_t samples_wanted = 0;
  bool validation = false;                       // the set is one of validation_dataset*
  std::filesystem::path model_directory;         // empty: the model starts from random values
  std::string model_tokenizer;                   // the bytes of the model's tokenizer.json; empty: none
  std::vector<std::string>* warnings = nullptr;  // printed with the run's; null: dropped
  void warn(std::string text) const {
    if (warnings != nullptr) warnings->push_back(std::move(text));
  }
};

// Thrown where files of a data set are not there: an error here, and a warning where a run for another
// machine is checked (`heddle check --elsewhere`).
class HEDDLE_API MissingData : public Error {
 public:
  struct One {
    std::string where, what;  // "run.yaml:4 dataset.file_pattern"; "no file matches 'train*.bin'"
  };
  explicit MissingData(std::vector<One> all);  // at least one
  ~MissingData() override;
  const std::vector<One>& all() const { return all_; }

 private:
  std::vector<One> all_;
};

// What a data set knows of the tokenizer of its tokens.
struct DataTokenizer {
  std::string name;          // of its directory or repository
  std::string digest;        // a checksum of its files; empty: not known
  int64_t vocabulary = 0;    // the largest id + 1; 0: not known
  int64_t end_token = -1;    // after a document; -1: none, or not known
  bool holds_bytes = false;  // a token is a byte of text
  bool is_known() const { return holds_bytes || vocabulary > 0 || !digest.empty(); }
};

// A file that a data set reads: no output of a run may replace it.
struct DataInput {
  std::filesystem::path file;
  std::string what;  // "a token file of the run"
};

// What a check before the first step has found, kept from one start to the next, by a name of the set's
// choice, such as the path of a file.
struct DataNotes {
  std::map<std::string, std::string> before;  // by earlier starts
  std::map<std::string, std::string> now;     // to be kept
};

// Where a sample is written to.
class SampleTarget {
 public:
  // documents: begins of documents in the whole batch are added, `first` is the place of the sample there.
  SampleTarget(std::span<int64_t> tokens, std::span<int64_t> labels, std::vector<int32_t>& documents,
               int64_t first)
      : tokens(tokens), labels(labels), documents_(documents), first_(first) {}

  std::span<int64_t> tokens, labels;  // length(sample) each; labels: Batch::kIgnore (-100) counts nothing

  // A document begins at token `at` > 0 of the sample: attention does not cross it. Ascending. The first
  // begins at token 0 without a word.
  void begin_document(int64_t at) const { documents_.push_back(static_cast<int32_t>(first_ + at)); }

 private:
  std::vector<int32_t>& documents_;
  int64_t first_;
};

// Samples, numbered from 0. Everything is a function of the section, the facts and the index alone, the same
// on every rank; const functions may be called from several threads at once. The order of training is
// heddle's own: a permutation of the indices by seed and epoch.
class HEDDLE_API IDataset {
 public:
  virtual ~IDataset();

  virtual int64_t size() const = 0;  // samples; at least 1
  // Tokens of one sample, at least 1. It has as many labels: label j is the token that the model is to give
  // after tokens 0 to j.
  virtual int64_t length(int64_t sample) const = 0;
  // Tokens of a row where samples are not packed; no sample is longer, and shorter ones are filled. 0: the
  // rows of a microbatch are as long as the longest of them.
  virtual int64_t row_length() const = 0;
  // Writes all tokens and all labels. Throws Error{input} for what cannot be read.
  virtual void read(int64_t sample, const SampleTarget& to) const = 0;
  // A checksum of the content, in words: a checkpoint keeps it, and a run that resumes with another one is
  // refused. Names of files do not matter.
  virtual std::string digest() const = 0;

  virtual int64_t longest() const;  // tokens of the longest sample; asks for each length
  // Whether samples may differ in length; false: each has row_length() tokens.
  virtual bool is_uneven() const { return true; }
  // Whether a sample may have several documents, or what fills a row must not be seen as its text.
  virtual bool has_documents() const { return false; }
  // Whether label j is token j + 1 wherever it counts. False: sets whose labels are something else.
  virtual bool labels_follow() const { return true; }
  // Whether samples are trained on in the order of their indices, whatever dataloader.shuffle says.
  virtual bool sequential() const { return false; }
  virtual bool uses_seed() const { return false; }  // DataFacts::seed decides its samples
  // What else decides the samples, by key, for checkpoints: "dataset.lengths" and the like.
  virtual std::map<std::string, std::string> settings() const { return {}; }
  virtual DataTokenizer tokenizer() const { return {}; }
  virtual std::vector<DataInput> inputs() const { return {}; }
  // Called on one rank before the first step; may read everything once. False: whether every token is in the
  // vocabulary is not known, and heddle reads all rows once to find the first that is not.
  virtual bool verify(DataNotes& notes) const;
};

}  // namespace heddle
