// A small model to train in tests: an embedding, a few layers and a loss, with prime sizes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"
#include "heddle/model/unit.h"
#include "heddle/parallel/parallelizer.h"

namespace heddle::kits {

inline constexpr int64_t kVocabulary = 13, kSequence = 5, kRows = 12;

struct Shape {
  int64_t width = 7;
  int layers = 3;
  bool tied = false;        // the last unit has the first one's weight, layer 2 has that of layer 0
  bool unused = false;      // each layer has `extra`, used where Batch::extra is above 0; `never` in layer 0
  bool frozen = false;      // the weight of layer 0 and all of layer 1 require no gradient
  bool one_number = false;  // everything is frozen except one number in layer 0
  bool foreign = false;     // slots of another library's module: with values, changed in place
  bool valued = false;      // slots of heddle's kind that have values already
  int64_t first_value = 0;  // of foreign and valued: the values follow from it and the names
  c10::Device home = at::kCPU;  // of those values
  bool modules = false;         // a Llama of heddle's own layers; the members above do nothing
};

// Units "first", "layer.0", ..., "last". Parameters are on meta unless `foreign` or `valued`.
HEDDLE_API Units small_model(const Shape& shape);

// Variants of a Llama of heddle's own layers on meta, or on the CPU with values.
struct LlamaShape {
  bool tied = false;
  bool frozen = false;  // the norms and the first layer
  bool valued = false;
  bool experts = false;  // a Mixtral
};
HEDDLE_API Units small_llama(const LlamaShape& shape);

// The rows of one data-parallel rank at one step: microbatches of one row each, or one batch of all rows.
// Batch::extra is 1 for the last row of all ranks in the first step, for the first row in the third, else 0.
struct Rows {
  int64_t vocabulary = kVocabulary, sequence = kSequence, rows = kRows;
  bool packed = false;  // each row holds two documents
};
HEDDLE_API std::vector<Batch> rows_of(int64_t step, int64_t rank, int64_t ranks, bool one_batch,
                                      const Rows& = {});

// Splits the layers of small_model() along the axis tp: the rows of their weights and biases.
class HEDDLE_API LayerSplit : public IParallelizer {
 public:
  Needs needs() const override;
  std::vector<Placed> apply(Units& units, const DeviceMesh& mesh) override;
};

}  // namespace heddle::kits
