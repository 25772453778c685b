// Packed documents train as the same documents alone, on one rank and under context parallelism.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "plugins/context/over_cp.h"
#include "plugins/pipelines.h"
#include "plugins/training_data.h"

namespace heddle::tests {
namespace {

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
