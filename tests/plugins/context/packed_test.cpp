// Packed documents train as the same documents alone, on one rank and under context parallelism.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "plugins/context/over_cp.h"
#include "plugins/pipelines.h"

namespace heddle::tests {
namespace {

// Each row is packed otherwise; some rows are one document.
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

Training packed(const std::string& model = "llama") {
  Training run = four_heads(model);
  run.change_batch = pack;
  return run;
}

// Every document in a row of its own.
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

TEST(PackedDocuments, TrainAsTheSameDocumentsAlone) {
  for (const std::string model : {"llama", "qwen3"}) {
    Training alone = four_heads(model);
    alone.change_batch = unpack;
    expect_close(train(packed(model)), train(alone));
  }
}

TEST(PackedDocuments, EqualOneRankUnderContextParallelism) {
  const Outcome want = train(packed());
  for (const std::string& method : kMethods)
    for (const int cp : {2, 4}) {
      SCOPED_TRACE(method + " " + std::to_string(cp));
      expect_close(train(over_cp(packed(), mesh_of(1, 1, cp), method)), want);
    }
}

TEST(PackedDocuments, EqualOneRankBesideTensorParallelism) {
  const Outcome want = train(packed());
  for (const std::string& method : kMethods) {
    SCOPED_TRACE(method);
    Training run = packed();
    run.parallelizers = {{"tensor", kSequence}};
    expect_close(train(over_cp(run, mesh_of(1, 1, 2, 2), method)), want);
  }
}

TEST(PackedDocuments, EqualOneRankInAPipelineAndWithCheckpointing) {
  Training piped = pipeline("1f1b", 2, 3, 2);
  piped.change_batch = pack;
  Training one = piped;
  one.strategy = "single";
  one.section = "{}";
  one.axes.clear();
  one.make_schedule = nullptr;
  one.pipeline = {};
  const Outcome want = train(one);
  piped.checkpointing = ActivationCheckpointing::full;
  for (const std::string method : {"allgather", "ring"})
    expect_close(train(over_cp(piped, mesh_of(1, 1, 2, 1, 2), method)), want);
}

}  // namespace
}  // namespace heddle::tests
