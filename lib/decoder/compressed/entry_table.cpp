// Builds entry tables. Queries whose ranges start at the same token belong to one document.
#include "lib/decoder/compressed/entry_table.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "heddle/nn/device_ops.h"

namespace heddle::decoder {
namespace {

// Writes the entries of the documents in order.
class EntryWriter {
 public:
  explicit EntryWriter(int64_t rate) : rate_(rate) {}
  // Returns the index of the document's first entry.
  int64_t add(int64_t begin, int64_t end) {
    const auto first_entry = static_cast<int64_t>(first_.size());
    const int64_t entries = rate_ == 0 ? 0 : (end - begin) / rate_;
    for (int64_t i = 0; i < entries; ++i) {
      first_.push_back(begin + i * rate_);
      positions_.push_back(i * rate_);
    }
    return first_entry;
  }
  void put(EntryTable& out, c10::Device device) const {
    out.count = static_cast<int64_t>(first_.size());
    out.first = model::sent_to(at::tensor(first_, at::kLong), device);
    const at::Tensor positions = at::tensor(positions_, at::kLong);
    out.opens = model::sent_to(positions.eq(0), device);
    out.positions = model::sent_to(positions.unsqueeze(0), device);
  }

 private:
  int64_t rate_;
  std::vector<int64_t> first_, positions_;
};

model::DeviceRanges on(at::Tensor host, c10::Device device) {
  const at::Tensor there = model::sent_to(host, device);
  return {std::move(host), there, {}};
}

}  // namespace

std::shared_ptr<const EntryTable> entry_table(const at::Tensor& causal, int64_t rate, int64_t window,
                                              c10::Device device) {
  auto out = std::make_shared<EntryTable>();
  out->rate = rate;
  out->window = window;
  const int64_t queries = causal.size(0);
  const auto* const seen = causal.const_data_ptr<int32_t>();
  const at::Tensor tokens = at::empty({queries, 2}, at::kInt), entries = at::empty({queries, 2}, at::kInt);
  auto* const of_tokens = tokens.mutable_data_ptr<int32_t>();
  auto* const of_entries = entries.mutable_data_ptr<int32_t>();
  EntryWriter writer(rate);
  for (int64_t first = 0, next = 0; first < queries; first = next) {
    const int32_t begin = seen[2 * first];
    while (next < queries && seen[2 * next] == begin) ++next;
    const auto entry = static_cast<int32_t>(writer.add(begin, seen[2 * next - 1]));
    for (int64_t query = first; query < next; ++query) {
      const int32_t end = seen[2 * query + 1];
      const int64_t complete = rate == 0 ? 0 : (end - begin) / rate;
      of_tokens[2 * query] = static_cast<int32_t>(std::max<int64_t>(begin, end - window));
      of_tokens[2 * query + 1] = end;
      of_entries[2 * query] = entry;
      of_entries[2 * query + 1] = static_cast<int32_t>(entry + complete);
      out->most = std::max(out->most, complete);
    }
  }
  writer.put(*out, device);
  out->tokens = tokens;
  out->entries = on(entries, device);
  return out;
}

const std::shared_ptr<const EntryTable>& EntryTables::of(const Batch& batch, const at::Tensor& like) {
  model::Heads rows{batch.tokens.size(0), whole_sequence_of(batch), 1};
  if (like.is_meta()) {
    auto counts = std::make_shared<EntryTable>();
    counts->rate = rate_;
    counts->window = std::min(window_, rows.sequence);
    counts->most = rate_ == 0 ? 0 : rows.sequence / rate_;
    counts->count = counts->most * rows.batch;
    kept_ = std::move(counts);
    return kept_;
  }
  auto causal = model::kept_ranges(rows, batch.documents, like);
  if (kept_ && source_ == causal) return kept_;
  source_ = std::move(causal);
  kept_ = entry_table(source_->host, rate_, window_, like.device());
  return kept_;
}

std::shared_ptr<const EntryTable> EntryTables::of_last(int64_t queries, int64_t sequence,
                                                       c10::Device device) const {
  const at::Tensor causal = at::empty({queries, 2}, at::kInt);
  auto* const seen = causal.mutable_data_ptr<int32_t>();
  for (int64_t i = 0; i < queries; ++i) {
    seen[2 * i] = 0;
    seen[2 * i + 1] = static_cast<int32_t>(sequence - queries + i + 1);
  }
  return entry_table(causal, rate_, window_, device);
}

}  // namespace heddle::decoder
