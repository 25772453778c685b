// Answers of the running model to the prompts of `validation_samples`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/engine/engine.h"
#include "lib/report/metrics.h"
#include "lib/run/generate/generate.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Every rank computes the same tokens, from rank 0's logits. Each new token is a forward pass over all tokens
// before it, because the stages of a run have no KV cache.
class ValidationSamples {
 public:
  // Rank 0 tokenizes the prompts, with Python unless tokens are bytes, and sends them to the other ranks. A
  // collective of every rank. Throws Error{input} if a prompt has a token outside the model's vocabulary, and
  // the errors of the tokenizer.
  ValidationSamples(const RunSpec& run, engine::Model& model);

  // Returns one record per prompt on rank 0, else none. A collective of every rank, called between two steps.
  std::vector<SampleRecord> answers(const StepInfo& info);

 private:
  at::Tensor logits(const Batch& batch);
  std::vector<SampleRecord> records(const StepInfo& info,
                                    const std::vector<std::vector<int64_t>>& answers) const;

  const RunSpec& run_;
  engine::Model& model_;
  std::unique_ptr<Communicator> world_;        // null: one rank
  std::vector<std::vector<int64_t>> prompts_;  // token ids of the prompts
  Sampling sampling_;
  int64_t next_step_ = 0;  // Batch::step of the answers
};

}  // namespace heddle
