// A plugin's data set: what it throws carries the plugin's name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/plugin/named/named_object.h"
#include "heddle/data/dataset.h"

namespace heddle::plugin {

class NamedDataset : public NamedObject<IDataset> {
 public:
  using NamedObject::NamedObject;
  int64_t size() const override {
    return named("counted its samples", [&] { return inner_->size(); });
  }
  int64_t length(int64_t sample) const override {
    return named("told a sample's length", [&] { return inner_->length(sample); });
  }
  int64_t row_length() const override {
    return named("told its rows' length", [&] { return inner_->row_length(); });
  }
  void read(int64_t sample, const SampleTarget& to) const override {
    named("read a sample", [&] { inner_->read(sample, to); });
  }
  std::string digest() const override {
    return named("made a digest of its content", [&] { return inner_->digest(); });
  }
  int64_t longest() const override {
    return named("looked for its longest sample", [&] { return inner_->longest(); });
  }
  bool is_uneven() const override { return inner_->is_uneven(); }
  bool has_documents() const override { return inner_->has_documents(); }
  bool labels_follow() const override { return inner_->labels_follow(); }
  bool sequential() const override { return inner_->sequential(); }
  bool uses_seed() const override { return inner_->uses_seed(); }
  std::map<std::string, std::string> settings() const override {
    return named("told its settings", [&] { return inner_->settings(); });
  }
  DataTokenizer tokenizer() const override {
    return named("told its tokenizer", [&] { return inner_->tokenizer(); });
  }
  std::vector<DataInput> inputs() const override {
    return named("listed its files", [&] { return inner_->inputs(); });
  }
  bool verify(DataNotes& notes) const override {
    return named("checked its content", [&] { return inner_->verify(notes); });
  }
};

}  // namespace heddle::plugin
