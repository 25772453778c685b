// Boxes of a whole tensor.
#include "heddle/checkpoint/manifest.h"

#include <algorithm>

#include "heddle/base/text.h"

namespace heddle::checkpoint {
namespace {

using Boxes = std::span<const Box*>;

constexpr int kMostSplits = 64;  // nesting limit; more than any layout has, a bound for forged ones

// Sorted along `dim`: the end of the first group of boxes that a plane separates from all others.
size_t end_of_group(Boxes boxes, size_t dim) {
  int64_t end = boxes[0]->offset[dim] + boxes[0]->size[dim];
  size_t i = 1;
  for (; i < boxes.size() && boxes[i]->offset[dim] < end; ++i)
    end = std::max(end, boxes[i]->offset[dim] + boxes[i]->size[dim]);
  return i;
}

bool can_be_cut_apart(Boxes boxes, size_t dims, int splits) {
  if (boxes.size() < 2) return true;
  if (splits == kMostSplits) return false;
  for (size_t dim = 0; dim < dims; ++dim) {
    std::sort(boxes.begin(), boxes.end(),
              [&](const Box* a, const Box* b) { return a->offset[dim] < b->offset[dim]; });
    size_t end = end_of_group(boxes, dim);
    if (end == boxes.size()) continue;
    for (;; end = end_of_group(boxes, dim)) {
      if (!can_be_cut_apart(boxes.first(end), dims, splits + 1)) return false;
      boxes = boxes.subspan(end);
      if (boxes.empty()) return true;
    }
  }
  return false;
}

}  // namespace

bool are_apart(std::span<const Box> boxes) {
  std::vector<const Box*> filled;
  for (const Box& box : boxes)
    if (box.numel() != 0) filled.push_back(&box);
  return filled.empty() || can_be_cut_apart(filled, filled[0]->size.size(), 0);
}

int64_t Box::numel() const {
  int64_t total = 1;
  for (const int64_t length : size) total *= length;
  return total;
}

bool fits(const Box& box, std::span<const int64_t> shape) {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (shape[dim] < 0 || box.offset[dim] < 0 || box.size[dim] < 0 ||
        box.offset[dim] > shape[dim] - box.size[dim])
      return false;
  return true;
}

bool countable(std::span<const int64_t> shape) {
  int64_t total = 1;
  for (const int64_t length : shape)
    if (length < 0 || __builtin_mul_overflow(total, std::max<int64_t>(length, 1), &total)) return false;
  return total <= (int64_t{1} << 59);  // bytes of the widest dtype fit too
}

void for_each_run(const Box& box, std::span<const int64_t> shape,
                  const std::function<void(int64_t first, int64_t count)>& visit) {
  if (box.numel() == 0) return;
  // Dims from `cut` on are whole (all but dim `cut` itself), so a run spans them.
  size_t cut = shape.size();
  int64_t run = 1;
  while (cut > 0) {
    --cut;
    run *= box.size[cut];
    if (box.size[cut] != shape[cut]) break;
  }
  std::vector<int64_t> stride(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;) stride[dim - 1] = stride[dim] * shape[dim];
  for (int64_t row = 0; row < box.numel() / run; ++row) {
    int64_t rest = row, first = 0;
    for (size_t dim = shape.size(); dim-- > 0;) {
      first += box.offset[dim] * stride[dim];
      if (dim >= cut) continue;
      first += rest % box.size[dim] * stride[dim];
      rest /= box.size[dim];
    }
    visit(first, run);
  }
}

std::string written(std::span<const int64_t> sizes) {
  std::vector<std::string> words;
  for (const int64_t size : sizes) words.push_back(std::to_string(size));
  return "[" + text::join(words) + "]";
}

}  // namespace heddle::checkpoint
