// `heddle generate`: continues a text with a trained model.
#include "trainer/cli/generate.h"

#include <iostream>

#include "heddle/base/error.h"
#include "heddle/mesh/alone.h"
#include "heddle/parallel/single.h"
#include "trainer/models/generate.h"
#include "trainer/models/make_units.h"
#include "trainer/models/pretrained.h"

namespace heddle::cli {
namespace {

std::vector<int64_t> prompt_of(const GenerateCommand& command, const ModelPlace& model, bool bytes) {
  if (!command.tokens.empty()) return command.tokens;
  if (!bytes)
    throw Error(ErrorCode::usage, model.weights.string(),
                "the model was not trained on bytes of text, so a prompt needs its token ids",
                "heddle generate " + command.directory + " --tokens 1,2,3");
  if (command.prompt.empty())
    throw Error(ErrorCode::usage, "heddle generate", "the prompt is empty", "give --prompt TEXT");
  std::vector<int64_t> tokens;
  for (const char byte : command.prompt) tokens.push_back(static_cast<unsigned char>(byte));
  return tokens;
}

void check_tokens(const std::vector<int64_t>& tokens, int64_t vocabulary) {
  for (const int64_t token : tokens)
    if (token < 0 || token >= vocabulary)
      throw Error(ErrorCode::usage, "heddle generate",
                  "token " + std::to_string(token) + " is outside the model's vocabulary of " +
                      std::to_string(vocabulary));
}

Stages load(const Pretrained& model, const DeviceMesh& mesh) {
  const at::ScalarType dtype = model.config.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat;
  Plan plan;
  plan.strategy = parallel::make_single();
  return parallel::build(make_units(model.config, at::TensorOptions().device(at::kMeta).dtype(dtype)), plan,
                         mesh, model.source, 0);
}

void print(const std::vector<int64_t>& tokens, bool bytes) {
  if (bytes) {
    for (const int64_t token : tokens) std::cout.put(static_cast<char>(token));
  } else {
    for (size_t i = 0; i < tokens.size(); ++i) std::cout << (i == 0 ? "" : ",") << tokens[i];
  }
  std::cout << std::endl;
}

}  // namespace

int generate(const GenerateCommand& command) {
  const Pretrained model = open_pretrained(command.directory);
  const bool bytes = has_byte_tokenizer(model.place) && command.tokens.empty();
  const std::vector<int64_t> prompt = prompt_of(command, model.place, bytes);
  check_tokens(prompt, model.config.vocab_size);

  AloneRendezvous meeting(Log::to_stderr(0));
  const DeviceMesh mesh = mesh::build({}, meeting, "generate: one rank");
  Stages stages = load(model, mesh);
  const Logits logits = [&](const Batch& batch) { return stages.front()->forward({}, batch).front(); };
  const Sampling sampling{command.temperature, command.top_k, model.config.max_position_embeddings};
  print(heddle::generate(logits, prompt, command.max_tokens, sampling, command.seed), bytes);
  return 0;
}

}  // namespace heddle::cli
