// Every pair of settings of a strategy trains as on one rank.
#include "plugins/pairwise.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "plugins/pipelines.h"
#include "plugins/topologies.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Pairwise.*");

TEST(Pairwise, CoversEveryLegalPair) {
  const std::vector<int> counts = {3, 2, 4, 2, 3};
  const auto legal = [](const Choice& choice) { return !(choice[0] == 1 && choice[2] == 3); };
  std::set<std::tuple<int, int, int, int>> met;
  const std::vector<Choice> rows = pairwise(counts, legal);
  for (const Choice& row : rows) {
    EXPECT_TRUE(legal(row));
    for (size_t a = 0; a < row.size(); ++a)
      for (size_t b = a + 1; b < row.size(); ++b) met.insert({a, row[a], b, row[b]});
  }
  EXPECT_EQ(met.size(), 77u - 1u);
  EXPECT_LT(rows.size(), 20u);  // of 144
}

// A setting: its name, and the change that each of its values makes to a training.
struct Value {
  std::string label;
  std::function<void(Training&)> apply;
};
struct Setting {
  std::string name;
  std::vector<Value> values;
};
using Settings = std::vector<Setting>;

// A field of the strategy. Each value is a piece of its section; "" keeps the default.
Setting field(const std::string& name, const std::vector<std::string>& pieces) {
  Setting setting{name, {}};
  for (const std::string& piece : pieces)
    setting.values.push_back({piece.empty() ? "default" : piece, [piece](Training& run) {
                                if (!piece.empty()) run.section += ", " + piece;
                              }});
  return setting;
}

Value on_mesh(const std::vector<Axis>& axes, const std::string& schedule) {
  std::string label;
  for (const Axis& axis : axes) label += axis.name + " " + std::to_string(axis.size) + " ";
  return {label + schedule, [axes, schedule](Training& run) {
            run.axes = axes;
            for (const Axis& axis : axes) {
              if (axis.name == "tp" && axis.size > 1) run.parallelizers = {{"tensor", kSequence}};
              if (axis.name != "pp" || axis.size == 1) continue;
              run.make_schedule = [schedule] { return make_schedule(schedule); };
              run.pipeline.microbatch_size = 1;
            }
          }};
}

// stages: of another mesh, on which backwards are split, or a rank has several stages.
Setting topology(const std::vector<std::vector<Axis>>& meshes, const std::vector<Axis>& stages = {}) {
  Setting setting{"mesh", {}};
  for (const std::vector<Axis>& axes : meshes) setting.values.push_back(on_mesh(axes, "1f1b"));
  for (const char* schedule : {"zb1p", "interleaved1f1b"})
    if (!stages.empty()) setting.values.push_back(on_mesh(stages, schedule));
  return setting;
}

// Settings that every strategy is combined with: of the model, of the step, and of the units.
Settings common() {
  return {
      {"accumulation",
       {{"1", [](Training& run) { run.microbatches = 1; }},
        {"3", [](Training& run) { run.microbatches = 3; }}}},
      {"checkpointing",
       {{"none", [](Training&) {}},
        {"full", [](Training& run) { run.checkpointing = ActivationCheckpointing::full; }},
        {"selective", [](Training& run) { run.checkpointing = ActivationCheckpointing::selective; }}}},
      {"embeddings",
       {{"untied", [](Training&) {}}, {"tied", [](Training& run) { run.model.tie_word_embeddings = true; }}}},
      {"frozen",
       {{"nothing", [](Training&) {}},
        {"a layer",
         [](Training& run) {
           for (const char* name :
                {"input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                 "self_attn.v_proj.weight", "self_attn.q_norm.weight", "self_attn.k_norm.weight",
                 "self_attn.o_proj.weight", "post_attention_layernorm.weight", "mlp.gate_proj.weight",
                 "mlp.up_proj.weight", "mlp.down_proj.weight"})
             run.frozen.push_back(std::string("model.layers.1.") + name);
         }},
        {"parts", [](Training& run) {
           run.frozen = {"model.layers.0.mlp.up_proj.weight", "model.layers.1.input_layernorm.weight",
                         "model.layers.2.self_attn.q_proj.weight"};
         }}}}};
}

Training model_of(const Settings& settings, const Choice& choice) {
  Training run = four_heads("qwen3");
  run.model.num_hidden_layers = 4;
  run.steps = 5;
  for (size_t i = 0; i < settings.size(); ++i)
    if (choice[i] != kOpen) settings[i].values[choice[i]].apply(run);
  return run;
}

int size_of(const Training& run, const std::string& axis) {
  for (const Axis& one : run.axes)
    if (one.name == axis) return one.size;
  return 1;
}

// Ranks and microbatches split the twelve sequences of a step.
bool fits(const Training& run) {
  const int ranks = size_of(run, "dp") * size_of(run, "dp_replicate") * size_of(run, "dp_shard");
  return 12 % (ranks * run.microbatches) == 0;
}

// Returns the outcome of one rank with the same model, tied and frozen in the same way.
const Outcome& wanted(const Training& run) {
  static std::map<std::pair<bool, size_t>, Outcome> known;
  const auto key = std::make_pair(run.model.tie_word_embeddings, run.frozen.size());
  if (known.count(key) == 0) {
    Training alone;
    alone.microbatches = 4;
    alone.model = run.model;
    alone.frozen = run.frozen;
    alone.steps = run.steps;
    known[key] = train(alone);
  }
  return known.at(key);
}

void expect_all_equal_one_rank(const std::string& strategy, const std::string& section, Settings settings) {
  for (Setting& one : common()) settings.push_back(std::move(one));
  std::vector<int> counts;
  for (const Setting& setting : settings) counts.push_back(static_cast<int>(setting.values.size()));
  const auto legal = [&](const Choice& choice) { return fits(model_of(settings, choice)); };
  for (const Choice& choice : pairwise(counts, legal)) {
    std::string label;
    for (size_t i = 0; i < settings.size(); ++i)
      label += settings[i].name + ": " + settings[i].values[choice[i]].label + "; ";
    SCOPED_TRACE(label);
    Training run = model_of(settings, choice);
    run.strategy = strategy;
    run.section = "{" + section + run.section.substr(2) + "}";
    expect_close(train(run), wanted(run));
  }
}

TEST(Pairwise, SettingsOfDdpTrainAsOneRank) {
  expect_all_equal_one_rank(
      "ddp", "broadcast_buffers: true",
      {topology({{{"dp", 1}},
                 {{"dp", 2}},
                 {{"dp", 3}},
                 {{"dp", 4}},
                 {{"dp", 2}, {"tp", 2}},
                 {{"pp", 2}, {"dp", 2}},
                 {{"pp", 2}, {"dp", 2}, {"tp", 2}}},
                {{"pp", 2}, {"dp", 2}}),
       field("bucket", {"", "bucket_cap_mb: 0", "bucket_cap_mb: 0.002"}),
       field("view", {"", "gradient_as_bucket_view: true"}), field("static", {"", "static_graph: true"}),
       field("unused", {"", "find_unused_parameters: true"})});
}

TEST(Pairwise, SettingsOfFsdp2TrainAsOneRank) {
  expect_all_equal_one_rank(
      "fsdp2", "mp_policy: {param_dtype: float32, reduce_dtype: float32}",
      {topology({{{"dp_shard", 1}},
                 {{"dp_shard", 2}},
                 {{"dp_shard", 3}},
                 {{"dp_shard", 4}},
                 {{"dp_replicate", 2}, {"dp_shard", 2}},
                 {{"dp_shard", 2}, {"tp", 2}},
                 {{"pp", 2}, {"dp_shard", 2}},
                 {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 2}}},
                {{"pp", 2}, {"dp_shard", 2}}),
       field("reshard", {"", "reshard_after_forward: true", "reshard_after_forward: false"}),
       field(
           "prefetch",
           {"", "enable_fsdp2_prefetch: true",
            "enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 0, fsdp2_backward_prefetch_depth: 0",
            "enable_fsdp2_prefetch: true, fsdp2_forward_prefetch_depth: 3, fsdp2_backward_prefetch_depth: "
            "1"}),
       field("offload", {"", "offload_policy: {pin_memory: true}"}),
       field("frozen units",
             {"", "multimodal: {frozen_sharding: per_layer}", "multimodal: {frozen_sharding: replicate}"}),
       field("defer", {"", "defer_fsdp_grad_sync: false"})});
}

TEST(Pairwise, SettingsOfMegatronFsdpTrainAsOneRank) {
  expect_all_equal_one_rank(
      "megatron_fsdp", "check_for_nan_in_grad: false",
      {topology({{{"dp", 1}}, {{"dp", 2}}, {{"dp", 3}}, {{"dp", 4}}, {{"dp", 2}, {"cp", 1}, {"tp", 2}}}),
       field("strategy",
             {"zero_dp_strategy: 0", "zero_dp_strategy: 1", "zero_dp_strategy: 2", "zero_dp_strategy: 3"}),
       field("units", {"", "megatron_fsdp_unit_modules: [DecoderLayer, Embedding, Head]"}),
       field("averages", {"", "average_in_collective: true", "calculate_per_token_loss: true"}),
       field("reduce", {"", "overlap_grad_reduce: false"}),
       field("gather", {"", "overlap_param_gather: false"}),
       field("buckets", {"", "disable_bucketing: true"}), field("buffers", {"", "fsdp_double_buffer: true"}),
       field("checks", {"", "report_nan_in_param_grad: true"}),
       field("dtypes", {"", "grad_reduce_in_fp32: true", "preserve_fp32_weights: true"})});
}

const Setting kMegatronMeshes =
    topology({{{"dp_shard", 1}},
              {{"dp_shard", 2}},
              {{"dp_shard", 3}},
              {{"dp_replicate", 2}, {"dp_shard", 1}},
              {{"dp_replicate", 2}, {"dp_shard", 2}},
              {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 1}},
              {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 2}},
              {{"dp_shard", 2}, {"cp", 1}, {"tp", 2}}},
             {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 1}});

TEST(Pairwise, SettingsOfMegatronsFlatBuffersTrainAsOneRank) {
  expect_all_equal_one_rank(
      "megatron", "overlap_grad_reduce: true",
      {kMegatronMeshes,
       field("optimizer",
             {"", "use_distributed_optimizer: true",
              "use_distributed_optimizer: true, overlap_param_gather: true",
              "use_distributed_optimizer: true, overlap_param_gather: true, align_param_gather: true",
              "use_distributed_optimizer: true, reduce_scatter_with_fp32_accumulation: true"}),
       field("buckets", {"", "bucket_size: 700", "num_buckets: 4", "pad_buckets_for_high_nccl_busbw: true"}),
       field("averages", {"", "average_in_collective: true", "calculate_per_token_loss: true",
                          "gradient_reduce_div_fusion: false"}),
       field("checks", {"", "check_for_nan_in_grad: true, check_for_large_grads: true"}),
       field("weights", {"", "delay_wgrad_compute: true"}),
       field("sums", {"", "param_name_patterns_for_fp32_local_accumulation: ['*.weight']"})});
}

TEST(Pairwise, SettingsOfMegatronsOwnFsdpTrainAsOneRank) {
  const std::string strategy = "data_parallel_sharding_strategy: ";
  expect_all_equal_one_rank(
      "megatron", "use_megatron_fsdp: true",
      {kMegatronMeshes,
       field("strategy", {strategy + "no_shard", strategy + "optim", strategy + "optim_grads",
                          strategy + "optim_grads_params"}),
       field("overlap",
             {"", "overlap_grad_reduce: true", "overlap_grad_reduce: true, overlap_param_gather: true",
              "overlap_grad_reduce: true, overlap_param_gather: true, "
              "fsdp_all_gather_in_start_param_sync: false"}),
       field("buffers", {"", "fsdp_double_buffer: true",
                         "fsdp_double_buffer: true, fsdp_db_use_persist_buf_on_alloc_fail: true",
                         "megatron_fsdp_max_pool_double_buffer: true"}),
       field("budget",
             {"", "suggested_communication_unit_size: 3000", "suggested_communication_unit_size: 1000000"}),
       field("averages", {"", "average_in_collective: true", "calculate_per_token_loss: true",
                          "gradient_reduce_div_fusion: false"}),
       field("dtypes", {"", "megatron_fsdp_main_grads_dtype: float64",
                        "megatron_fsdp_main_grads_dtype: float64, megatron_fsdp_grad_comm_dtype: float32",
                        "megatron_fsdp_main_params_dtype: null, megatron_fsdp_use_decoupled_grad: true",
                        "reduce_scatter_with_fp32_accumulation: true"}),
       field("weights", {"", "delay_wgrad_compute: true"})});
}

}  // namespace
}  // namespace heddle::tests
