// The head in float32, and what it may not be then.
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
                "the model has no linear layer beside a token loss", "leave lm_head_precision out");
  }
  if (!is_tied(units, *head.linear)) return;
  if (!block.wrap_outer_model)
    throw Error(ErrorCode::config, "distributed.moe.wrap_outer_model",
                "the head is tied to the embedding across the boundary of the outer model, and with "
                "wrap_outer_model: false no unit holds both",
                "set wrap_outer_model: true");
  if (wants_float(block))
    throw Error(ErrorCode::config, "distributed.moe.lm_head_precision",
                "the head is tied to the embedding, which computes in the dtype of the other layers",
                "leave lm_head_precision out, or untie them: tie_word_embeddings: false");
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
                  "autocast_dtype computes the head in its dtype",
                  "use mp_policy in place of autocast_dtype, or leave lm_head_precision out");
    if (linear->weight.scalar_type() != at::kFloat)
      throw Error(ErrorCode::config, "distributed.moe.lm_head_precision",
                  "the strategy keeps the head's weight in another dtype than float32",
                  "use fsdp2 or megatron, which compute each parameter in a dtype of its own, or train in "
                  "float32");
    return x.to(at::kFloat);
  };
  (head.norm == nullptr ? head.linear->input : head.norm->output).add(widened);
}

}  // namespace heddle::moe
