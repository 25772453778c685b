// Layout that keeps rows whole: large items in order, gaps filled with heads of other items and with small
// items.
#include <algorithm>
#include <numeric>
#include <optional>

#include "layout.h"

namespace heddle::megatron_fsdp {
namespace {

int64_t chunk_of(std::span<const RowItem> items) {
  int64_t chunk = 1;
  for (const RowItem& item : items)
    if (item.elements > 0) chunk = std::lcm(chunk, item.row);
  return chunk;
}

class Rows {
 public:
  explicit Rows(std::span<const RowItem> items) : items_(items), chunk_(chunk_of(items)) {
    out_.offsets.assign(items.size(), 0);
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].elements > 0) (items[i].elements < chunk_ ? small_ : large_).push_back(i);
    std::stable_sort(small_.begin(), small_.end(),
                     [&](size_t a, size_t b) { return items_[a].elements > items_[b].elements; });
  }

  RowLayout run(int ranks) {
    while (!large_.empty()) {
      const size_t next = large_.front();
      large_.erase(large_.begin());
      end_ = place(next, end_);
      fill_gap();
    }
    while (!small_.empty()) {
      const size_t next = small_.front();
      small_.erase(small_.begin());
      end_ = place(next, up(end_, items_[next].row));
    }
    out_.elements = up(end_, chunk_ * ranks);
    return std::move(out_);
  }

 private:
  int64_t place(size_t item, int64_t at) {
    out_.offsets[item] = at;
    return at + items_[item].elements;
  }

  // Fills the gap from the end of the placed items to the next chunk.
  void fill_gap() {
    int64_t gap_end = up(end_, chunk_);
    int64_t filled = end_;
    if (gap_end == end_) return;
    end_ = gap_end;
    if (const auto head = best_head(gap_end - filled)) {
      const size_t item = large_[*head];
      large_.erase(large_.begin() + static_cast<std::ptrdiff_t>(*head));
      gap_end -= items_[item].elements % chunk_;
      end_ = place(item, gap_end);
    }
    for (size_t i = 0; i < small_.size();) {
      const int64_t at = up(filled, items_[small_[i]].row);
      if (at + items_[small_[i]].elements > gap_end) {
        ++i;
        continue;
      }
      filled = place(small_[i], at);
      small_.erase(small_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  // Returns the large item whose remainder beyond whole chunks fills most of the gap.
  std::optional<size_t> best_head(int64_t room) const {
    std::optional<size_t> best;
    int64_t most = 0;
    for (size_t i = 0; i < large_.size(); ++i) {
      const int64_t rest = items_[large_[i]].elements % chunk_;
      if (rest <= room && rest > most) best = i, most = rest;
    }
    return best;
  }

  std::span<const RowItem> items_;
  int64_t chunk_;
  std::vector<size_t> large_, small_;  // not placed yet
  int64_t end_ = 0;
  RowLayout out_;
};

}  // namespace

RowLayout lay_out_rows(std::span<const RowItem> items, int ranks) {
  return Rows(items).run(ranks);
}

}  // namespace heddle::megatron_fsdp
