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

// Every rank computes the same tokens: rank 0's logits decide. Each new token is a forward of all tokens
// before it, as the stages of a run keep no keys and values.
class ValidationSamples {
 public:
  // Rank 0 makes tokens of the prompts, with Python where they are not bytes; the others get them. A
  // collective of every rank. Throws Error{input} for a prompt with a token outside the model's vocabulary,
  // and what the tokenizer throws.
  ValidationSamples(const RunSpec& run, engine::Model& model);

  // On rank 0 a record of each prompt, elsewhere none. A collective of every rank, between two steps.
  std::vector<SampleRecord> answers(const StepInfo& info);

 private:
  at::Tensor logits(const Batch& given);
  std::vector<SampleRecord> records(const StepInfo& info, const std::vector<std::vector<int64_t>>& all) const;

  const RunSpec& run_;
  engine::Model& model_;
  std::unique_ptr<Communicator> world_;        // null: one rank
  std::vector<std::vector<int64_t>> prompts_;  // their tokens
  Sampling sampling_;
  int64_t next_step_ = 0;  // Batch::step of the answers
};

}  // namespace heddle
