// Tokens of each entry of a compressed attention, and the entries that a query sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "heddle/base/export.h"
#include "heddle/model/batch.h"
#include "lib/nn/attention/device_ranges.h"

namespace heddle::decoder {

// Table of whole rows. An entry stands for `rate` consecutive tokens of a document, from its first token on;
// the remaining tokens at the end have no entry. A token sees the entries of its document that are complete
// at this token, and the last tokens of a window.
struct EntryTable {
  int64_t rate = 0, count = 0;  // tokens per entry; number of entries
  int64_t window = 0;           // tokens
  at::Tensor first;             // int64 [count]: row of the first token
  at::Tensor opens;             // bool [count]: first entry of a document
  at::Tensor positions;         // int64 [1, count]: position of the first token in its document
  at::Tensor tokens;            // tokens that a query sees, as row ranges: int32 [queries, 2] on the host
  model::DeviceRanges entries;  // entries that a query sees, on host and device
  int64_t most = 0;             // maximum number of entries that one query sees
};

// causal: int32 [queries, 2] on the host: the first token of a query's document, and the token after the
// query. rate 0: no entries. On meta only the counts are set, for rows without documents.
std::shared_ptr<const EntryTable> entry_table(const at::Tensor& causal, int64_t rate, int64_t window,
                                              c10::Device device);

// Tables for the whole rows of a batch; the last one is cached. like: a tensor on the device.
class EntryTables {
 public:
  EntryTables(int64_t rate, int64_t window) : rate_(rate), window_(window) {}
  HEDDLE_API const std::shared_ptr<const EntryTable>& of(const Batch& batch, const at::Tensor& like);
  // Returns the table for the last `queries` tokens of one sequence.
  std::shared_ptr<const EntryTable> of_last(int64_t queries, int64_t sequence, c10::Device device) const;

 private:
  int64_t rate_, window_;
  std::shared_ptr<const model::DeviceRanges> source_;
  std::shared_ptr<const EntryTable> kept_;
};

}  // namespace heddle::decoder
