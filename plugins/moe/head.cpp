// Precision of the head, and checks of its tie to the embedding.
#include "head.h"

#include <map>
#include <string>

#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/model/unit.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"

namespace heddle::moe {
namespace {

bool is_tied(const Units& units, const Linear& head) {
  std::map<std::string, int> users;
  std::string name;
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      ++users[slot.name];
      if (slot.tensor == &head.weight) name = slot.name;
    }
  return !name.empty() && users.at(name) > 1;
}

bool wants_float(const Block& block) {
  return block.lm_head_precision.word == "float32";
}

}  // namespace

void check_head(const Units& units, const Block& block) {
  const model::LossHead head = model::loss_head_of(units);
  if (head.linear == nullptr) {
    if (!wants_float(block)) return;
    throw Error(ErrorCode::config, "distributed.moe.lm_head_precision",
                "the model has no head, a linear layer beside a token loss", "remove lm_head_precision");
  }
  if (!is_tied(units, *head.linear)) return;
  if (!block.wrap_outer_model)
    throw Error(ErrorCode::config, "distributed.moe.wrap_outer_model",
                "the head is tied to the embedding, but with wrap_outer_model: false no unit holds both",
                "set wrap_outer_model: true");
  if (wants_float(block))
    throw Error(ErrorCode::config, "distributed.moe.lm_head_precision",
                "lm_head_precision is set, but the head is tied to the embedding, which computes in the "
                "model's dtype",
                "remove lm_head_precision, or untie them: tie_word_embeddings: false");
}

void set_head_precision(const Units& units, const Block& block) {
  const model::LossHead head = model::loss_head_of(units);
  if (!wants_float(block) || head.linear == nullptr) return;
  head.linear->visit("", [](const std::string&, Module& module) {
    for (ParameterSlot& slot : module.slots()) slot.compute = at::kFloat;
  });
  const Linear* const linear = head.linear;
  const auto widened = [linear](at::Tensor x) {
    if (model::Autocast::active() != nullptr)
      throw Error(ErrorCode::config, "distributed.moe.lm_head_precision",
                  "lm_head_precision is float32, but autocast computes the head in autocast_dtype",
                  "set mp_policy instead of autocast_dtype, or remove lm_head_precision");
    if (linear->weight.scalar_type() != at::kFloat)
      throw Error(ErrorCode::config, "distributed.moe.lm_head_precision",
                  "lm_head_precision is float32, but the strategy keeps the head's weight in another dtype",
                  "use fsdp2 or megatron, which support a compute dtype per parameter, or train in "
                  "float32");
    return x.to(at::kFloat);
  };
  (head.norm == nullptr ? head.linear->input : head.norm->output).add(widened);
}

}  // namespace heddle::moe
