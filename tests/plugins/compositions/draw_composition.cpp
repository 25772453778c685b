// Sizes of axes, a strategy with its fields, and blocks of parallelizers, for at most eight ranks.
#include <numeric>

#include "plugins/compositions/composition.h"
#include "plugins/compositions/draw.h"

namespace heddle::tests {
namespace {

// Nine in ten draws follow the rules that are known of every strategy; the tenth may be refused.
struct Rules {
  std::string strategy;
  bool strict = true;
};

struct Degrees {
  int dp = 1, replicas = 1, tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
  int ranks() const { return dp * tp * cp * pp; }
};

Degrees draw_degrees(Draw& draw, const DrawnModel& model, const Rules& rules) {
  const bool no_context = rules.strict && rules.strategy == "ddp";
  const bool no_pipeline = rules.strict && rules.strategy == "megatron_fsdp";
  Degrees d;
  do {
    d.dp = draw.of({1, 1, 2, 2, 3, 4});
    d.tp = rules.strict ? draw.of({1, 1, 2}) : draw.of({1, 1, 2, 4});
    d.cp = no_context ? 1 : draw.of({1, 1, 1, 2, 3});
    d.pp = no_pipeline ? 1 : draw.of({1, 1, 2, 2, 4});
  } while (d.ranks() > 8 || d.ranks() == 1 || (rules.strict && d.pp > model.layers));
  if (d.dp == 4 && draw.one_in(2)) d.replicas = 2;
  const int stage = d.dp * d.tp * d.cp;
  if (!model.experts) return d;
  do {
    d.ep = draw.of({1, 2, 4});
    d.etp = draw.of({1, 1, 2});
  } while (stage % (d.ep * d.etp) != 0);
  return d;
}

std::string flag(Draw& draw, const char* name) {
  return std::string(", ") + name + ": " + (draw.one_in(2) ? "true" : "false");
}

// `low`: the strategy computes in bfloat16.
std::string strategy_fields(Draw& draw, const std::string& strategy, const Degrees& degrees, bool low) {
  const std::string replicas =
      degrees.replicas > 1 ? ", dp_replicate_size: " + std::to_string(degrees.replicas) : "";
  if (strategy == "ddp")
    return flag(draw, "gradient_as_bucket_view") + flag(draw, "find_unused_parameters") +
           ", bucket_cap_mb: " + draw.of({"null", "0.001"}) + (low ? ", autocast_dtype: bfloat16" : "");
  if (strategy == "fsdp2")
    return replicas + flag(draw, "defer_fsdp_grad_sync") + flag(draw, "enable_fsdp2_prefetch") +
           ", reshard_after_forward: " + draw.of({"null", "true", "false"}) +
           ", mp_policy: {param_dtype: " + (low ? "bfloat16" : "float32") + ", reduce_dtype: float32}";
  if (strategy == "megatron_fsdp")
    return ", zero_dp_strategy: " + std::to_string(draw.below(4)) + flag(draw, "overlap_grad_reduce") +
           flag(draw, "overlap_param_gather") + flag(draw, "average_in_collective") +
           flag(draw, "disable_bucketing") + flag(draw, "fsdp_double_buffer");
  return replicas + flag(draw, "use_distributed_optimizer") + flag(draw, "overlap_grad_reduce") +
         flag(draw, "average_in_collective") + ", bucket_size: " + draw.of({"null", "300"});
}

struct Pipeline {
  std::string block;
  int microbatches = 1;
};

Pipeline draw_pipeline(Draw& draw, int ranks, int layers, bool undo) {
  if (ranks == 1) return {};
  const bool one_stage = layers < 2 * ranks;  // the model has no two stages for each rank
  const std::string schedule =
      one_stage ? draw.of({"gpipe", "1f1b", "zb1p", "zb2p"})
                : draw.of({"gpipe", "1f1b", "zb1p", "zb2p", "loopedbfs", "dfs", "interleaved1f1b",
                           "interleavedzerobubble", "zbvzerobubble", "dualpipev", "vhalf", "vmin", "auto"});
  return {", pipeline: {pp_schedule: " + schedule + ", pp_microbatch_size: 1" + flag(draw, "pp_overlap") +
              flag(draw, "pp_recv_buffer_pool") + (undo ? flag(draw, "pp_post_validation") : "") + "}",
          draw.of({ranks, 2 * ranks})};
}

std::string blocks(Draw& draw, const Degrees& degrees, const Rules& rules, bool experts) {
  std::string out;
  if (degrees.cp > 1)
    out += ", context: {method: " +
           (rules.strict && (degrees.cp == 3 || degrees.tp > 1)
                ? draw.of({"allgather", "ring"})
                : draw.of({"allgather", "ring", "ulysses", "ring_ulysses"})) +
           "}";
  if (degrees.ep * degrees.etp > 1)
    out += ", moe: {dispatcher: " + draw.of({"allgather", "alltoall", "auto"}) + "}";
  const bool has_sequence = rules.strategy == "fsdp2" || rules.strategy == "megatron";
  const bool sequence = degrees.tp > 1 && draw.one_in(2) && (!rules.strict || (has_sequence && !experts));
  if (sequence) out += ", sequence_parallel: true";
  if (degrees.tp > 1 && (!rules.strict || (sequence && rules.strategy == "fsdp2")))
    out += flag(draw, "enable_async_tensor_parallel");
  return out;
}

std::string axis_sizes(const Degrees& degrees) {
  std::string out;
  const auto add = [&](const char* name, int size) {
    if (size > 1) out += std::string(", ") + name + ": " + std::to_string(size);
  };
  add("tp_size", degrees.tp);
  add("cp_size", degrees.cp);
  add("pp_size", degrees.pp);
  add("ep_size", degrees.ep);
  add("etp_size", degrees.etp);
  return out;
}

std::string freezing(Draw& draw) {
  return draw.of({"freeze_config: {freeze_embeddings: true}\n",
                  "freeze_config: {freeze_embeddings: false, patterns: ['layers\\.0\\.']}\n",
                  "freeze_config: {freeze_embeddings: false, patterns: ['norm']}\n"});
}

std::string adapters(Draw& draw, const Degrees& degrees, bool strict) {
  std::string out =
      "peft: {dim: 3, alpha: 6, " +
      draw.of({"match_all_linear: true", "target_modules: '*_proj'", "exclude_modules: ['*.q_proj']"});
  if (degrees.tp > 1 && strict) return out + "}\n";
  return out + ", dropout: " + draw.of({"0.0", "0.0", "0.2"}) + flag(draw, "use_dora") + "}\n";
}

std::string distillation(Draw& draw, int vocabulary) {
  return "recipe: KnowledgeDistillationRecipeForNextTokenPrediction\nteacher_model: {config: {model_type: "
         "llama, "
         "vocab_size: " +
         std::to_string(vocabulary) +
         ", hidden_size: 24, intermediate_size: 28, num_hidden_layers: 3, num_attention_heads: 4, "
         "num_key_value_heads: 2, initializer_range: 0.3}}\nkd_ratio: " +
         draw.of({"0.3", "1.0"}) + "\nkd_loss_fn: {temperature: " + draw.of({"1.0", "2.5"}) + "}\n";
}

// Draws further sections of a recipe: frozen parts or adapters, products in fp8, a teacher.
std::string more_sections(Draw& draw, const DrawnModel& model, const Degrees& degrees, const Rules& rules,
                          bool fp8) {
  std::string out;
  if (draw.one_in(4))
    out += freezing(draw);
  else if (draw.one_in(4))
    out += adapters(draw, degrees, rules.strict);
  if (fp8) out += draw.of({"fp8: {enabled: true, filter_fqns: [lm_head]}\n", "te_fp8: {recipe: block}\n"});
  if (!fp8 && draw.one_in(6)) out += distillation(draw, model.vocabulary);
  return out;
}

// A step is `local` samples on each data-parallel rank, once or twice.
std::string batches(Draw& draw, const Degrees& degrees, int local) {
  const int64_t samples = int64_t{local} * degrees.dp * draw.of({1, 2});
  return "step_scheduler: {global_batch_size: " + std::to_string(samples) +
         ", local_batch_size: " + std::to_string(local) +
         ", max_steps: 5, num_epochs: null, ckpt_every_steps: null, save_checkpoint_every_epoch: false}\n";
}

}  // namespace

Composition draw_composition(uint64_t seed) {
  Draw draw(seed);
  Composition out;
  out.seed = seed;
  const bool fp8 = draw.one_in(8);
  const DrawnModel model = draw_model(draw, fp8);
  const Rules rules{draw.of({"fsdp2", "fsdp2", "ddp", "megatron_fsdp", "megatron"}), !draw.one_in(10)};
  const std::string& strategy = rules.strategy;
  Degrees degrees = draw_degrees(draw, model, rules);
  while (fp8 && (degrees.cp > 1 || (rules.strict && degrees.tp > 1)))
    degrees = draw_degrees(draw, model, rules);
  const Pipeline pipeline =
      draw_pipeline(draw, degrees.pp, model.layers, !rules.strict || strategy == "fsdp2");
  out.ranks = degrees.ranks();
  out.experts = model.experts;
  out.packed = draw.one_in(3);
  out.chats = draw.one_in(5);
  out.fp8 = fp8;
  out.low_precision = fp8 || ((strategy == "fsdp2" || strategy == "ddp") && !model.experts && draw.one_in(6));
  const bool in_bfloat16 = out.low_precision && !fp8;
  const int local = degrees.pp > 1 ? pipeline.microbatches : draw.of({1, 2, 3});
  out.rows = degrees.pp > 1 ? 1 : local;
  out.numbers =
      "seed: " + std::to_string(seed % 1000) + "\nmodel: {config: " + model.config +
      ", dtype: float32}\noptimizer: {lr: 0.01, betas: [0.9, 0.95], eps: 0.001, weight_decay: 0.1}\n" +
      "clip_grad_norm: {max_norm: " + draw.of({"1.0", "0.1"}) +
      ", norm_type: " + draw.of({"2.0", "2.0", "inf"}) + "}\n" +
      more_sections(draw, model, degrees, rules, fp8) + batches(draw, degrees, local);
  const auto distributed = [&](const std::string& own) {
    return "{strategy: " + own + axis_sizes(degrees) +
           ", activation_checkpointing: " + draw.of({"false", "full", "selective"}) +
           strategy_fields(draw, own, degrees, in_bfloat16) + blocks(draw, degrees, rules, model.experts) +
           pipeline.block + "}";
  };
  out.distributed = distributed(strategy);
  if (!out.low_precision && draw.one_in(3)) {
    const bool alone = draw.one_in(2);
    out.before = alone ? "{strategy: single}" : distributed(strategy);
    out.ranks_before = alone ? 1 : out.ranks;
  }
  return out;
}

}  // namespace heddle::tests
