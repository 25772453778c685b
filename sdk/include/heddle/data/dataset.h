// The interface of data sets: samples of tokens with labels, read by index.
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

// Facts about the run that the engine passes to a data set.
struct DataFacts {
  int64_t vocabulary = 0;        // vocabulary size of the model, above every token id; 0 if unknown
  uint64_t seed = 42;            // seed of the run
  int64_t local_batch_size = 1;  // rows per microbatch
  int64_t pack_size = 0;         // tokens per packed row; 0 if samples are not packed
  // Samples that the run reads from the data set: global_batch_size per step, or, for a validation set, one
  // batch per validation. 0 if unknown.
  int64_t samples_wanted = 0;
  bool validation = false;                // whether the set is one of validation_dataset*
  std::filesystem::path model_directory;  // empty if the model starts from random values
  std::string model_tokenizer;            // contents of the model's tokenizer.json; empty if there is none
  std::vector<std::string>* warnings = nullptr;  // printed with the run's warnings; null discards them
  void warn(std::string text) const {
    if (warnings != nullptr) warnings->push_back(std::move(text));
  }
};

// The error for missing files of a data set. `heddle check --elsewhere`, which checks a run for another
// machine, reports it as a warning.
class HEDDLE_API MissingData : public Error {
 public:
  struct One {
    std::string where, what;  // "run.yaml:4 dataset.file_pattern"; "no file matches 'train*.bin'"
  };
  explicit MissingData(std::vector<One> missing);  // at least one
  ~MissingData() override;
  const std::vector<One>& all() const { return all_; }

 private:
  std::vector<One> all_;
};

// The tokenizer of a data set's tokens, as far as the data set knows it.
struct DataTokenizer {
  std::string name;          // name of the tokenizer's directory or repository
  std::string digest;        // checksum of the tokenizer's files; empty if unknown
  int64_t vocabulary = 0;    // the largest id + 1; 0 if unknown
  int64_t end_token = -1;    // id of the token after a document; -1 if there is none or it is unknown
  bool holds_bytes = false;  // whether each token is a byte of text
  bool is_known() const { return holds_bytes || vocabulary > 0 || !digest.empty(); }
};

// A file that a data set reads. No output of a run may overwrite it.
struct DataInput {
  std::filesystem::path file;
  std::string description;  // "a token file of the run"
};

// Results of checks before the first step, kept between starts. The data set chooses the keys, such as the
// path of a file.
struct DataNotes {
  std::map<std::string, std::string> before;  // recorded by earlier starts
  std::map<std::string, std::string> now;     // to record by this start
};

// The destination of a sample.
class SampleTarget {
 public:
  // documents: receives the positions in the batch at which documents begin. first: the position of the
  // sample in the batch.
  SampleTarget(std::span<int64_t> tokens, std::span<int64_t> labels, std::vector<int32_t>& documents,
               int64_t first)
      : tokens(tokens), labels(labels), documents_(documents), first_(first) {}

  std::span<int64_t> tokens, labels;  // length(sample) each; a label Batch::kIgnore (-100) has no loss

  // Marks that a document begins at the index `token` > 0 of the sample, so that attention does not cross it.
  // Called in ascending order. The first document begins at token 0 and is not marked.
  void begin_document(int64_t token) const { documents_.push_back(static_cast<int32_t>(first_ + token)); }

 private:
  std::vector<int32_t>& documents_;
  int64_t first_;
};

// Samples numbered from 0. All results depend only on the section, the facts and the index, and are equal on
// every rank. Several threads may call const functions at once. heddle shuffles the indices itself, by seed
// and epoch.
class HEDDLE_API IDataset {
 public:
  virtual ~IDataset();

  virtual int64_t size() const = 0;  // number of samples, at least 1
  // Returns the number of tokens of a sample, at least 1. A sample has as many labels: label j is the token
  // that the model is to predict from tokens 0 to j.
  virtual int64_t length(int64_t sample) const = 0;
  // Returns the length of unpacked rows. No sample is longer, and shorter samples are padded. 0: each
  // microbatch is padded to its longest sample.
  virtual int64_t row_length() const = 0;
  // Writes all tokens and labels. Throws Error{input} if the sample cannot be read.
  virtual void read(int64_t sample, const SampleTarget& to) const = 0;
  // Returns a checksum of the content as text, independent of file names. A checkpoint stores it, and
  // resuming with a different digest is refused.
  virtual std::string digest() const = 0;

  virtual int64_t longest() const;  // tokens of the longest sample; calls length() for every sample
  // Returns whether samples may differ in length. false: each sample has row_length() tokens.
  virtual bool is_uneven() const { return true; }
  // Returns whether a sample may have several documents, or whether padding must be masked from attention.
  virtual bool has_documents() const { return false; }
  // Returns whether label j is token j + 1 wherever the label is not kIgnore.
  virtual bool labels_follow() const { return true; }
  // Returns whether training reads samples in index order, whatever dataloader.shuffle says.
  virtual bool sequential() const { return false; }
  virtual bool uses_seed() const { return false; }  // whether DataFacts::seed affects the samples
  // Returns further settings that affect the samples, by key ("dataset.lengths"), for checkpoints.
  virtual std::map<std::string, std::string> settings() const { return {}; }
  virtual DataTokenizer tokenizer() const { return {}; }
  virtual std::vector<DataInput> inputs() const { return {}; }
  // Checks the data before the first step, on one rank. May read everything once. Returns false if it is
  // unknown whether all tokens are in the vocabulary; heddle then reads all rows to find the first invalid
  // token.
  virtual bool verify(DataNotes& notes) const;
};

}  // namespace heddle
