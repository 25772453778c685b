// Maps the arguments of build_gpt2_model to keys of the family gpt2.
#include "lib/run/recipe/readers.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle::recipe {
namespace {

struct Arguments {
  std::string target;
  int64_t vocab_size = 50257, n_positions = 2048, n_embd = 768, n_layer = 12, n_head = 12;
  std::optional<int64_t> n_ctx, bos_token_id, eos_token_id;
  std::optional<std::string> attn_implementation;
  bool check_memory = true;
};

const ConfigSchema<Arguments>& gpt2_arguments() {
  const Range<int64_t> size{1, int64_t{1} << 28};
  static const auto schema =
      ConfigSchema<Arguments>()
          .field("_target_", &Arguments::target, "Function that builds the model: build_gpt2_model.")
          .field("vocab_size", &Arguments::vocab_size, "Vocabulary size.", size)
          .field("n_positions", &Arguments::n_positions,
                 "Number of position embeddings: the maximum sequence length.", size)
          .field("n_ctx", &Arguments::n_ctx, "Overrides n_positions.", size)
          .field("n_embd", &Arguments::n_embd, "Hidden size.", size)
          .field("n_layer", &Arguments::n_layer, "Number of decoder layers.", size)
          .field("n_head", &Arguments::n_head, "Number of attention heads.", size)
          .field("bos_token_id", &Arguments::bos_token_id, "Ignored.")
          .field("eos_token_id", &Arguments::eos_token_id, "Ignored.")
          .field("attn_implementation", &Arguments::attn_implementation, "Ignored.")
          .field("check_memory", &Arguments::check_memory,
                 "Refuse a run that does not fit into this machine's memory. false starts it.");
  return schema;
}

}  // namespace

bool builds_gpt2(const Node& section) {
  const Node* target = section.find("_target_");
  return target != nullptr && target->kind() == Node::Kind::text &&
         target->as_text().ends_with("build_gpt2_model");
}

ModelSection read_built_gpt2(const Node& section) {
  const Arguments given = gpt2_arguments().read(section);
  std::vector<Node::Entry> keys = {{"model_type", Node::text("gpt2")},
                                   {"vocab_size", Node::integer(given.vocab_size)},
                                   {"n_positions", Node::integer(given.n_ctx.value_or(given.n_positions))},
                                   {"n_embd", Node::integer(given.n_embd)},
                                   {"n_layer", Node::integer(given.n_layer)},
                                   {"n_head", Node::integer(given.n_head)},
                                   {"activation_function", Node::text("gelu")},
                                   {"scale_residual_init", Node::boolean(false)},
                                   {"embd_pdrop", Node::real(0.1)},
                                   {"attn_pdrop", Node::real(0.1)},
                                   {"resid_pdrop", Node::real(0)}};
  ModelSection model;
  model.source = ModelSection::Source::config;
  model.where = section.where();
  model.check_memory = given.check_memory;
  model.config = Node::map(std::move(keys), section.mark(), section.path());
  return model;
}

}  // namespace heddle::recipe
