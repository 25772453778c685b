// Which tokens an entry of a compressed attention has, and what a query sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"
#include "lib/nn/attention/device_ranges.h"

namespace heddle::decoder {

// Of whole rows. An entry stands for `rate` tokens of a document, one after the other from its first token;
// the last tokens of a document that fill none have no entry. A token sees the entries of its document that
// are complete with it, and the last tokens of a window.
struct EntryTable {
  int64_t rate = 0, count = 0;  // tokens of an entry, entries
  int64_t window = 0;           // tokens
  at::Tensor first;             // int64 [count]: the row of the first token
  at::Tensor opens;             // bool [count]: the first entry of a document
  at::Tensor positions;         // int64 [1, count]: of the first token in its document
  at::Tensor tokens;            // that a query sees, by their rows: int32 [queries, 2] on the host
  model::DeviceRanges entries;  // the same of entries, on both
  int64_t most = 0;             // entries that one query sees
};

// causal: int32 [queries, 2] on the host: the first token of a query's document, and the one behind the
// query. rate 0: there are no entries. On a meta device there are only counts, of rows without documents.
std::shared_ptr<const EntryTable> entry_table(const at::Tensor& causal, int64_t rate, int64_t window,
                                              c10::Device device);

// For the whole rows of a batch: the last table is kept. like: a tensor on the device.
class EntryTables {
 public:
  EntryTables(int64_t rate, int64_t window) : rate_(rate), window_(window) {}
  HEDDLE_API const std::shared_ptr<const EntryTable>& of(const Batch& batch, const at::Tensor& like);
  // For the last `queries` tokens of one sequence.
  std::shared_ptr<const EntryTable> of_last(int64_t queries, int64_t sequence, c10::Device device) const;

 private:
  int64_t rate_, window_;
  std::shared_ptr<const model::DeviceRanges> source_;
  std::shared_ptr<const EntryTable> kept_;
};

}  // namespace heddle::decoder
