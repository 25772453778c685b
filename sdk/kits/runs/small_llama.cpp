// The Llama and the rows that kits train.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "../small_model.h"
#include "heddle/parallel/build.h"
#include "plugins/llama/describe.h"

namespace heddle::kits {
namespace {

// As the engine would initialise them.
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
  llama::ModelConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = 14;
  config.intermediate_size = 23;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.initializer_range = 0.3;
  config.tie_word_embeddings = shape.tied;
  if (shape.experts) {
    config.model_type = "mixtral";
    config.num_hidden_layers = 2;
    config.mixture.experts = 12;
    config.mixture.top_k = 2;
    config.mixture.width = 12;
    config.mixture.normalise = true;
  }
  const at::Device place = shape.valued ? at::kCPU : at::kMeta;
  Units units = llama::make_units(config, at::TensorOptions(place).dtype(at::kFloat));
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
