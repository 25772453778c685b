// The Llama and the rows that kits train.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "heddle/decoder/family.h"
#include "heddle/parallel/build.h"
#include "lib/testing/small_model.h"

namespace heddle::kits {
namespace {

// Initializes parameters as the engine does.
void give_values(Units& units) {
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters()) {
      Shard shard = whole_shard(slot, {});
      shard.tensor = *slot.tensor;
      parallel::initialise(shard, 42);
    }
}

void freeze(Units& units) {
  for (const auto& unit : units)
    for (ParameterSlot& slot : unit->parameters())
      if (slot.name.find("norm") != slot.name.npos || slot.name.find("layers.0.") != slot.name.npos)
        slot.tensor->set_requires_grad(false);
}

}  // namespace

Units small_llama(const LlamaShape& shape) {
  decoder::Attention attention{.heads = 4, .kv_heads = 2, .head_dim = 6, .rotation = {.dim = 6}};
  decoder::Layer layer{attention, decoder::Mlp{.width = 23}};
  if (shape.experts) {
    decoder::Mixture mixture;
    mixture.width = 12;
    mixture.router.experts = 12;
    mixture.router.rule.top_k = 2;
    mixture.router.rule.normalise = true;
    mixture.router.balance.coefficient = 0.001;
    layer.feed_forward = mixture;
  }
  decoder::Model model;
  model.vocabulary = kVocabulary, model.width = 14;
  model.layers.assign(shape.experts ? 2 : 3, layer);
  model.tied = shape.tied;
  model.init_std = 0.3;
  const at::Device place = shape.valued ? at::kCPU : at::kMeta;
  Units units = decoder::make_spec({.model = model})->make_units(at::TensorOptions(place).dtype(at::kFloat));
  if (shape.valued) give_values(units);
  if (shape.frozen) freeze(units);
  return units;
}

std::vector<Batch> rows_of(int64_t step, int64_t rank, int64_t ranks, bool one_batch, const Rows& sizes) {
  std::vector<Batch> out;
  const int64_t first = rank * sizes.rows / ranks, last = (rank + 1) * sizes.rows / ranks;
  const int64_t rows = one_batch ? last - first : 1, length = sizes.sequence;
  for (int64_t row = first; row < last; row += rows) {
    Batch batch;
    batch.tokens = at::empty({rows, length}, at::kLong);
    batch.labels = at::empty({rows, length}, at::kLong);
    batch.extra = at::zeros({rows}, at::kFloat);
    batch.step = step;
    std::vector<int> documents = {0};
    for (int64_t i = 0; i < rows; ++i) {
      const at::Tensor sequence =
          (at::arange(length + 1, at::kLong) * (3 + (row + i) % 2) + (row + i) * 5 + step)
              .remainder(sizes.vocabulary);
      batch.tokens[i].copy_(sequence.narrow(0, 0, length));
      batch.labels[i].copy_(sequence.narrow(0, 1, length));
      if ((row + i) % 4 == 1) batch.labels[i][0] = Batch::kIgnore;
      if ((step == 0 && row + i == sizes.rows - 1) || (step == 2 && row + i == 0)) batch.extra[i] = 1;
      documents.push_back(static_cast<int>(i * length + length / 2));
      documents.push_back(static_cast<int>((i + 1) * length));
    }
    if (sizes.packed) batch.documents = at::tensor(documents, at::kInt);
    out.push_back(std::move(batch));
  }
  return out;
}

}  // namespace heddle::kits
