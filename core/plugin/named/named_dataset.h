// A plugin's data set: what it throws carries the plugin's name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/plugin/guard.h"
#include "heddle/data/dataset.h"

namespace heddle::plugin {

class NamedDataset : public IDataset {
 public:
  NamedDataset(Author author, std::unique_ptr<IDataset> inner)
      : author_(std::move(author)), inner_(std::move(inner)) {}
  int64_t size() const override {
    return guarded_but_errors(author_, "counted its samples", [&] { return inner_->size(); });
  }
  int64_t length(int64_t sample) const override {
    return guarded_but_errors(author_, "told a sample's length", [&] { return inner_->length(sample); });
  }
  int64_t row_length() const override {
    return guarded_but_errors(author_, "told its rows' length", [&] { return inner_->row_length(); });
  }
  void read(int64_t sample, const SampleTarget& to) const override {
    guarded_but_errors(author_, "read a sample", [&] { inner_->read(sample, to); });
  }
  std::string digest() const override {
    return guarded_but_errors(author_, "made a digest of its content", [&] { return inner_->digest(); });
  }
  int64_t longest() const override {
    return guarded_but_errors(author_, "looked for its longest sample", [&] { return inner_->longest(); });
  }
  bool is_uneven() const override { return inner_->is_uneven(); }
  bool has_documents() const override { return inner_->has_documents(); }
  bool labels_follow() const override { return inner_->labels_follow(); }
  bool sequential() const override { return inner_->sequential(); }
  bool uses_seed() const override { return inner_->uses_seed(); }
  std::map<std::string, std::string> settings() const override {
    return guarded_but_errors(author_, "told its settings", [&] { return inner_->settings(); });
  }
  DataTokenizer tokenizer() const override {
    return guarded_but_errors(author_, "told its tokenizer", [&] { return inner_->tokenizer(); });
  }
  std::vector<DataInput> inputs() const override {
    return guarded_but_errors(author_, "listed its files", [&] { return inner_->inputs(); });
  }
  bool verify(DataNotes& notes) const override {
    return guarded_but_errors(author_, "checked its content", [&] { return inner_->verify(notes); });
  }

 private:
  Author author_;
  std::unique_ptr<IDataset> inner_;
};

}  // namespace heddle::plugin
