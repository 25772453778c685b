// Values of a small generator, split among ranks and batches.
#include "plugins/training_data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

namespace heddle::tests {
namespace {

constexpr int64_t kLength = 7;

// Tokens and labels of one step. Some sequences have few labels, and one has none.
Batch data_of(int step, int64_t sequences, int64_t vocabulary) {
  Batch batch;
  batch.tokens = at::empty({sequences, kLength}, at::kLong);
  batch.labels = at::empty({sequences, kLength}, at::kLong);
  uint32_t state = 12345u + 977u * static_cast<uint32_t>(step);
  const auto draw = [&] { return static_cast<int64_t>((state = state * 1664525u + 1013904223u) >> 16); };
  for (int64_t row = 0; row < sequences; ++row)
    for (int64_t at = 0; at < kLength; ++at) {
      const int64_t token = draw() % vocabulary;
      batch.tokens[row][at] = token;
      const bool ignored = row == 5 || at < row % 4;
      const int64_t next = (token * 3 + 1) % vocabulary;  // a rule that can be learned
      batch.labels[row][at] = ignored ? Batch::kIgnore : next;
    }
  return batch;
}

}  // namespace

std::vector<Batch> deal(const Training& run, int step, const DeviceMesh& mesh) {
  const Batch all = data_of(step, run.sequences, run.model.vocab_size);
  const int ranks = mesh.size("dp"), rank = mesh.rank("dp"), microbatches = run.microbatches;
  std::vector<Batch> mine;
  const int64_t rows = run.sequences / (microbatches * ranks);
  for (int i = 0; i < microbatches; ++i) {
    const int64_t first = (i * ranks + rank) * rows;
    Batch batch;
    batch.tokens = all.tokens.narrow(0, first, rows).contiguous();
    batch.labels = all.labels.narrow(0, first, rows).contiguous();
    batch.step = step;
    if (run.change_batch) run.change_batch(batch, i * ranks + rank);
    mine.push_back(std::move(batch));
  }
  return mine;
}

void pack(Batch& batch, int) {
  const int64_t rows = batch.tokens.size(0), length = batch.tokens.size(1);
  std::vector<int> offsets;
  for (int64_t row = 0; row < rows; ++row) {
    const int begin = static_cast<int>(row * length);
    offsets.push_back(begin);
    if (row % 3 != 2) offsets.push_back(begin + 2 + static_cast<int>(row % 2));
    if (row % 3 == 0) offsets.push_back(begin + static_cast<int>(length) - 1);
  }
  offsets.push_back(static_cast<int>(rows * length));
  batch.documents = at::tensor(offsets, at::kInt);
}

void unpack(Batch& batch, int slice) {
  pack(batch, slice);
  const int64_t length = batch.tokens.size(1), documents = batch.documents.numel() - 1;
  const int32_t* const offsets = batch.documents.const_data_ptr<int32_t>();
  const at::Tensor tokens = at::zeros({documents, length}, at::kLong);
  const at::Tensor labels = at::full({documents, length}, Batch::kIgnore, at::kLong);
  for (int64_t i = 0; i < documents; ++i) {
    const int64_t count = offsets[i + 1] - offsets[i];
    tokens[i].narrow(0, 0, count).copy_(batch.tokens.view({-1}).narrow(0, offsets[i], count));
    labels[i].narrow(0, 0, count).copy_(batch.labels.view({-1}).narrow(0, offsets[i], count));
  }
  batch = {};
  batch.tokens = tokens;
  batch.labels = labels;
}

}  // namespace heddle::tests
