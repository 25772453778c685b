// Generates answers to prompts with the running model at validation.
#include "lib/run/loop/validation_samples.h"

#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "lib/data/tokenizer/end_tokens.h"
#include "lib/data/tokenizer/tokenizer.h"
#include "lib/run/model/tokenizer_files.h"
#include "lib/train/optimizer/on_device.h"

namespace heddle {
namespace {

using Ids = std::vector<int64_t>;

void check_tokens(const std::vector<Ids>& prompts, const RunSpec& run) {
  const int64_t vocabulary = run.model.spec->facts().vocabulary;
  for (size_t i = 0; i < prompts.size(); ++i)
    for (const int64_t token : prompts[i])
      if (token >= vocabulary)
        throw Error(ErrorCode::input, run.recipe.samples.where,
                    "prompt " + std::to_string(i + 1) + " has the token " + std::to_string(token) +
                        ", but the model's vocabulary size is " + std::to_string(vocabulary),
                    "check that the tokenizer belongs to the model");
}

// Serializes the tokens of the prompts and the stop tokens for the other ranks.
std::string tokens_of(const RunSpec& run) {
  const SamplesSection& section = run.recipe.samples;
  std::vector<Ids> prompts;
  Ids ends;
  if (run.samples_tokenizer.empty()) {
    for (const std::string& prompt : section.prompts) {
      Ids& ids = prompts.emplace_back();
      for (const char byte : prompt) ids.push_back(static_cast<unsigned char>(byte));
    }
  } else {
    Tokenizer tokenizer(run.samples_tokenizer);
    const auto& files = run.model.origin.files;  // includes the chat template that the data set names
    const auto own = files.find(kChatTemplate);
    const std::string chat_template = own == files.end() ? "" : own->second;
    for (const std::string& prompt : section.prompts) {
      if (section.chat) {
        prompts.push_back(tokenizer.chat(prompt, chat_template));
        continue;
      }
      const std::vector<uint32_t> ids = tokenizer.encode({&prompt, 1}).at(0);
      prompts.emplace_back(ids.begin(), ids.end());
    }
    ends = stop_tokens(files);  // as in an export
    if (ends.empty()) ends = stop_tokens(run.samples_tokenizer, &tokenizer);
  }
  check_tokens(prompts, run);
  return nlohmann::json{{"prompts", prompts}, {"ends", ends}}.dump();
}

}  // namespace

ValidationSamples::ValidationSamples(const RunSpec& run, engine::Model& model) : run_(run), model_(model) {
  Rendezvous& rendezvous = model.mesh.rendezvous();
  const auto made =
      nlohmann::json::parse(rendezvous.meet("validation_samples", "", [&](std::span<const std::string>) {
        return std::vector<std::string>{tokens_of(run)};
      }));
  prompts_ = made["prompts"].get<std::vector<Ids>>();
  const SamplesSection& section = run.recipe.samples;
  sampling_ = {section.temperature, section.top_k, run.model.spec->facts().max_positions, section.top_p,
               made["ends"].get<Ids>()};
  if (rendezvous.world_size() == 1) return;
  std::vector<int> all(static_cast<size_t>(rendezvous.world_size()));
  std::iota(all.begin(), all.end(), 0);
  world_ = rendezvous.group("samples", all);
}

// Returns the logits of the last token. Ranks that split layers may also split rows, so the number of tokens
// is padded to a multiple. Padding follows all tokens, and causal attention hides it.
at::Tensor ValidationSamples::logits(const Batch& batch) {
  Batch padded = batch;
  padded.step = next_step_;
  const int64_t length = batch.tokens.size(1), split = run_.setup.sizes.tp;
  if (const int64_t whole = (length + split - 1) / split * split; whole > length) {
    padded.tokens = at::zeros({1, whole}, batch.tokens.options());
    padded.tokens.narrow(1, 0, length).copy_(batch.tokens);
    padded.padding = at::zeros({1, whole}, batch.tokens.options().dtype(at::kBool));
    padded.padding.narrow(1, length, whole - length).fill_(true);
  }
  model_.stages.transform(padded, model_.mesh);
  const Tensors out = model_.stages.front()->forward({}, train::on_device(padded, model_.mesh.device()));
  const at::Tensor all = out.at(0)[0];
  at::Tensor last = all[length - 1].to(at::kCPU, at::kFloat).contiguous().view({1, 1, all.size(1)});
  if (world_) world_->broadcast(last, 0)->wait();
  return last;
}

std::vector<SampleRecord> ValidationSamples::answers(const StepInfo& info) {
  const SamplesSection& section = run_.recipe.samples;
  next_step_ = info.step + 1;
  std::vector<Ids> all;
  for (const Ids& prompt : prompts_)
    all.push_back(generate([this](const Batch& batch) { return logits(batch); }, prompt,
                           section.max_new_tokens, sampling_, static_cast<uint64_t>(section.seed)));
  if (model_.mesh.rendezvous().rank() != 0) return {};
  return records(info, all);
}

// The answer's text is the suffix that it adds to the text of its prompt.
std::vector<SampleRecord> ValidationSamples::records(const StepInfo& info,
                                                     const std::vector<Ids>& answers) const {
  std::optional<Tokenizer> tokenizer;
  if (!run_.samples_tokenizer.empty()) tokenizer.emplace(run_.samples_tokenizer);
  std::vector<SampleRecord> out;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Ids added(answers[i].begin() + static_cast<std::ptrdiff_t>(prompts_[i].size()), answers[i].end());
    SampleRecord& one = out.emplace_back();
    one.step = info.step;
    one.epoch = info.epoch;
    one.prompt = run_.recipe.samples.prompts[i];
    one.tokens = static_cast<int64_t>(added.size());
    if (!tokenizer) {
      for (const int64_t token : added) one.text += static_cast<char>(token);
      continue;
    }
    const std::string before = tokenizer->decode(prompts_[i]), whole = tokenizer->decode(answers[i]);
    one.text = whole.starts_with(before) ? whole.substr(before.size()) : tokenizer->decode(added);
  }
  return out;
}

}  // namespace heddle
