// `heddle plan`: layouts that fit, their order, pictures and traces, machines, and written recipes.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/main/with_all.h"
#include "training_files.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("PlanAdvice.*");

using nlohmann::json;
using ::testing::HasSubstr;

// Returns the layouts that fit, the fastest first, from the lines of `heddle plan --json`.
std::vector<json> fitting(const Outcome& found) {
  std::vector<json> out;
  std::istringstream lines(found.out);
  for (std::string line; std::getline(lines, line);)
    if (json layout = json::parse(line); layout.value("fits", false)) out.push_back(std::move(layout));
  return out;
}

class Plan : public ::testing::Test {
 protected:
  Words plan(const Words& more) const {
    return plus({"plan", files_.path("run.yaml"), "--seconds", "10", "--model.config.num_attention_heads",
                 "4", "--model.config.num_key_value_heads", "2"},
                more);
  }
  const TrainingFiles files_;
};

TEST_F(Plan, PrintsLayoutsThatFitFastestFirst) {
  const Outcome text = heddle(plan({"--world-size", "4", "--device", "H100", "--top", "3"}));
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("4 x H100, 8 samples of 16 tokens per step, memory for tensors: "));
  EXPECT_THAT(text.out, HasSubstr("tokens/s"));
  const std::vector<json> found = fitting(heddle(plan({"--world-size", "4", "--json"})));
  EXPECT_GT(found.size(), 1U);
  double last = 1e300;
  for (size_t i = 0; i < found.size(); ++i) {
    const json& layout = found[i];
    EXPECT_EQ(layout["rank"], i + 1);
    EXPECT_LE(layout["tokens_per_second"], last);
    last = layout["tokens_per_second"];
    EXPECT_NEAR(layout["tokens_per_second_per_gpu"].get<double>() * 4, last, last * 1e-4);
    EXPECT_GT(layout["mfu"], 0);
  }
  EXPECT_EQ(found[0]["search"]["global_batch_size"], 8) << found[0];
}

TEST_F(Plan, WritesARecipeThatCheckAccepts) {
  const std::string best = files_.path("best.yaml");
  const Outcome written =
      heddle(plan({"--world-size", "4", "--fix", "tp_size=2", "--fix", "pp_size=2", "--write", best}));
  ASSERT_EQ(written.status, 0) << written.error << written.out;
  EXPECT_THAT(read_text(best), HasSubstr("as heddle plan predicts: "));
  const json verdict = json::parse(heddle({"check", best, "--world-size", "4", "--json"}).out);
  EXPECT_EQ(verdict["sizes"]["tp"], 2) << verdict;
  EXPECT_EQ(verdict["sizes"]["pp"], 2) << verdict;
}

TEST_F(Plan, KeepsFixedSettings) {
  const auto recomputations = [&](const char* value) {
    std::set<json> out;
    for (const json& layout : fitting(heddle(plan(
             {"--world-size", "4", "--fix", std::string("activation_checkpointing=") + value, "--json"})))) {
      EXPECT_EQ(layout["activation_checkpointing"], layout["distributed"]["activation_checkpointing"]);
      out.insert(layout["activation_checkpointing"]);
    }
    return out;
  };
  EXPECT_EQ(recomputations("full"), (std::set<json>{"full"}));
  EXPECT_EQ(recomputations("false"), (std::set<json>{false}));
  const Outcome wrong = heddle(plan({"--world-size", "4", "--fix", "tp=2"}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("'tp' is not a key of a layout"));
}

TEST_F(Plan, RefusesAFixedValueThatNoLayoutHas) {
  const auto error_of = [&](const Words& fixed) {
    const std::string best = files_.path("best.yaml");
    const Outcome wrong = heddle(plan(plus({"--world-size", "4", "--write", best}, fixed)));
    EXPECT_EQ(wrong.status, 2);
    EXPECT_EQ(read_text(best), "");
    return wrong.error;
  };
  EXPECT_THAT(error_of({"--fix", "tp_size=3"}),
              HasSubstr("error[usage] --fix: no layout of 4 ranks and 8 samples per step has tp_size=3\n"
                        "  hint: give tp_size one of 1, 2\n"));
  EXPECT_THAT(error_of({"--fix", "cp_method=ring"}), HasSubstr("hint: add --fix cp_size=2\n"));
  EXPECT_THAT(error_of({"--fix", "precision=fp8"}), HasSubstr("hint: add --allow fp8\n"));
  EXPECT_THAT(error_of({"--fix", "pp_size=2", "--fix", "pp_size=1"}), HasSubstr("'pp_size' is given twice"));
  EXPECT_THAT(error_of({"--fix", "pp_size=2", "--fix", "tp_size=1", "--fix", "local_batch_size=4"}),
              HasSubstr("has all values of --fix\n  hint: remove one of them\n"));
}

TEST_F(Plan, ExplainsALayout) {
  const Outcome text = heddle(plan({"--world-size", "2", "--explain", "1"}));
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("\n1. fsdp2"));
  for (const char* part : {"products, ", "attention, ", "parameters and optimizer, ", "activations, "})
    EXPECT_THAT(text.out, HasSubstr(part));
  const std::vector<json> found = fitting(heddle(plan({"--world-size", "2", "--explain", "2", "--json"})));
  EXPECT_GT(found[1]["memory"]["activations"], 0) << found[1];
  EXPECT_FALSE(found[0].contains("memory"));
}

TEST_F(Plan, ExplainsTheMemoryOfTheTable) {
  const Words words = {"--world-size",
                       "4",
                       "--fix",
                       "pp_size=4",
                       "--fix",
                       "pp_schedule=1f1b",
                       "--fix",
                       "local_batch_size=1",
                       "--model.config.num_hidden_layers",
                       "8",
                       "--step_scheduler.global_batch_size",
                       "16",
                       "--json",
                       "--explain",
                       "1"};
  const std::vector<json> found = fitting(heddle(plan(words)));
  ASSERT_FALSE(found.empty());
  double sum = 0;
  for (const auto& [kind, bytes] : found[0]["memory"].items()) sum += bytes.get<double>();
  EXPECT_NEAR(sum, found[0]["peak_bytes"].get<double>(), sum * 1e-2) << found[0];
}

TEST_F(Plan, DrawsAStepOfAPipelineAndWritesItsTrace) {
  const std::string picture = files_.path("step.svg"), trace = files_.path("step.json");
  for (int time = 0; time < 2; ++time) {  // files of this command are replaced
    const Outcome drawn =
        heddle(plan({"--world-size", "4", "--fix", "pp_size=2", "--picture", picture, "--trace", trace}));
    ASSERT_EQ(drawn.status, 0) << drawn.error;
  }
  const std::string svg = read_text(picture);
  for (const char* part : {"<svg", "stage 0", "stage 1", "memory", "</svg>"})
    EXPECT_THAT(svg, HasSubstr(part));
  double products = 0, memory = 0;
  const json written = json::parse(read_text(trace));
  for (const json& event : written["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "products") products += event["dur"].get<double>();
    if (event["ph"] == "C") memory = std::max(memory, event["args"]["value"].get<double>());
  }
  EXPECT_GT(products, 0);
  EXPECT_GT(memory, 0);
}

TEST_F(Plan, ComparesStrategiesOfOneDtypeIfTheRecipeSetsNone) {
  const auto plan_in = [&](const char* dtype) {
    return fitting(heddle(plan(
        {"--world-size", "2", "--distributed", "null", "--model.dtype", dtype, "--json", "--top", "100"})));
  };
  const auto strategies = [](const std::vector<json>& found) {
    std::set<std::string> out;
    for (const json& layout : found) out.insert(layout["distributed"]["strategy"]);
    return out;
  };
  EXPECT_GE(strategies(plan_in("bfloat16")).size(), 3U);
  const std::vector<json> mixed = plan_in("float32");
  EXPECT_EQ(strategies(mixed), (std::set<std::string>{"fsdp2"}));
  const json refused = mixed[0]["search"]["refused"];
  EXPECT_EQ(refused["ddp computes in another dtype than the default strategy"], 1) << refused;
}

TEST_F(Plan, PredictsTheFirstLayoutOnOtherNumbersOfRanks) {
  const Words words = {"--world-size", "2", "--fix", "local_batch_size=1"};
  const json scaling = fitting(heddle(plan(plus(words, {"--json"})))).at(0)["search"]["scaling"];
  ASSERT_EQ(scaling.size(), 3U) << scaling;
  EXPECT_EQ(scaling[0]["world_size"], 1);
  EXPECT_EQ(scaling[1]["world_size"], 4);
  EXPECT_GT(scaling[1]["tokens_per_second"], scaling[0]["tokens_per_second"]);
  EXPECT_THAT(heddle(plan(words)).out, HasSubstr("\nrow 1 on 1 rank: "));
}

TEST_F(Plan, TriesEveryShapeOfATinyModel) {
  std::set<std::pair<int, int>> shapes;
  for (const json& layout : fitting(heddle(plan({"--world-size", "4", "--top", "100", "--json"}))))
    shapes.emplace(layout["layout"]["tp_size"].get<int>(), layout["layout"]["pp_size"].get<int>());
  EXPECT_GE(shapes.size(), 3U);
}

TEST_F(Plan, TriesMethodsOfContextParallelismForLongRowsAndForAFixedSize) {
  const auto methods = [&](const Words& more) {
    std::set<std::string> out;
    for (const json& layout : fitting(heddle(plan(plus(
             {"--world-size", "2", "--fix", "local_batch_size=1", "--fix", "activation_checkpointing=none",
              "--fix", "defer_fsdp_grad_sync=true", "--top", "100", "--json"},
             more)))))
      out.insert(layout["layout"]["cp_method"]);
    return out;
  };
  const std::set<std::string> all = {"allgather", "ring", "ulysses"};
  EXPECT_THAT(methods({"--row-length", "16384", "--model.config.max_position_embeddings", "16384"}),
              ::testing::IsSupersetOf(all));
  EXPECT_EQ(methods({"--fix", "cp_size=2"}), all);
  EXPECT_EQ(methods({}), (std::set<std::string>{""}));
}

TEST_F(Plan, TriesLowerPrecisionOnlyIfAllowed) {
  const auto precisions = [&](const Words& more) {
    std::set<std::string> out;
    for (const json& layout :
         fitting(heddle(plan(plus({"--world-size", "2", "--top", "100", "--model.config.hidden_size", "64",
                                   "--model.config.intermediate_size", "96", "--json"},
                                  more)))))
      out.insert(layout["layout"]["precision"]);
    return out;
  };
  EXPECT_EQ(precisions({}), (std::set<std::string>{""}));
  EXPECT_EQ(precisions({"--allow", "fp8"}), (std::set<std::string>{"", "fp8"}));
  EXPECT_EQ(precisions({"--allow", "fp8", "--allow", "te_fp8"}),
            (std::set<std::string>{"", "fp8", "te_fp8"}));
  EXPECT_EQ(precisions({"--allow", "te_fp8", "--te_fp8", "{recipe: block}"}), (std::set<std::string>{""}));
  const Outcome unknown = heddle(plan({"--world-size", "2", "--allow", "fp4"}));
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.error, HasSubstr("--allow: fp4 not in {fp8,te_fp8}"));
  const Outcome old = heddle(plan({"--world-size", "2", "--allow", "fp8", "--device", "A100"}));
  EXPECT_EQ(old.status, 2);
  EXPECT_THAT(old.error, HasSubstr("error[usage] --allow: the machine file A100 does not set peak_8"));
}

TEST_F(Plan, WritesPartsOfExpertsAndReductionsPerMicrobatch) {
  const std::string best = files_.path("best.yaml");
  const Outcome written = heddle(
      plan({"--world-size", "2", "--model",
            "{config: {model_type: mixtral, vocab_size: 256, hidden_size: 24, intermediate_size: 40, "
            "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, num_local_experts: 4, "
            "num_experts_per_tok: 2, max_position_embeddings: 32}}",
            "--fix", "tp_size=1", "--fix", "etp_size=2", "--fix", "defer_fsdp_grad_sync=false", "--fix",
            "local_batch_size=1", "--write", best}));
  ASSERT_EQ(written.status, 0) << written.error << written.out;
  EXPECT_THAT(written.out, HasSubstr("fsdp2, etp 2, batch 1, reduction per microbatch"));
  EXPECT_THAT(read_text(best), HasSubstr("etp_size: 2"));
  EXPECT_THAT(read_text(best), HasSubstr("defer_fsdp_grad_sync: false"));
  EXPECT_EQ(heddle({"check", best, "--world-size", "2"}).status, 0);
}

TEST_F(Plan, CountsTheRefusalOfAnAxisOnce) {
  const json refused = fitting(heddle(plan({"--world-size", "4", "--json", "--distributed", "null",
                                            "--model.dtype", "bfloat16"})))[0]["search"]["refused"];
  EXPECT_EQ(refused["megatron_fsdp does not support pipeline parallelism"], 1) << refused;
}

TEST_F(Plan, IsComparedWithTheRunOfItsRecipe) {
  const std::string best = files_.path("best.yaml");
  const Outcome written = heddle(plan({"--world-size", "1", "--device", "cpu", "--write", best}));
  ASSERT_EQ(written.status, 0) << written.error;
  const Words twenty = {"--step_scheduler.max_steps", "20", "--checkpoint.enabled", "false"};
  const Outcome run =
      heddle(plus({"train", best, "--checkpoint.checkpoint_dir", files_.path("run")}, twenty));
  ASSERT_EQ(run.status, 0) << run.error;
  EXPECT_THAT(run.out,
              ::testing::ContainsRegex("plan: predicted [0-9.e+-]+ ms per step, measured [0-9.e+-]+ ms"));
  const Outcome other =
      heddle(plus({"train", best, "--checkpoint.checkpoint_dir", files_.path("run2"), "--nproc-per-node", "2",
                   "--distributed", "{strategy: ddp}", "--step_scheduler.local_batch_size", "1"},
                  twenty));
  ASSERT_EQ(other.status, 0) << other.error;
  EXPECT_THAT(other.out, HasSubstr("plan: made for 1 ranks; this run has 2"));
}

// The recipe's own layout need not suit the ranks of the search.
TEST_F(Plan, ReplacesTheSizesOfTheRecipe) {
  for (const char* section : {"{strategy: fsdp2, dp_replicate_size: 2}", "{strategy: single}"}) {
    const Outcome found = heddle(plan({"--world-size", "1", "--distributed", section}));
    EXPECT_EQ(found.status, 0) << section << found.error;
  }
}

TEST_F(Plan, RefusesValuesThatNoRunHas) {
  files_.write("notes.yaml", "mine\n");
  for (const auto& [words, error] :
       {std::pair(Words{"--write", files_.path("notes.yaml")},
                  "notes.yaml exists and contains no recipe of heddle plan"),
        {Words{"--write", files_.path("run.yaml")},
         "run.yaml is the configuration itself, which would be lost"},
        {Words{"--row-length", "1000000"}, "--row-length: 1000000 is longer than the model's 32 positions"},
        {Words{"--memory", "nan"}, "--memory: 'nan' is not a number"},
        {Words{"--write", files_.path("none/best.yaml")}, "none/best.yaml does not exist"},
        {Words{"--row-length", "8", "--write", files_.path("best.yaml")},
         "--write: the recipe's rows have 16 tokens, and the plan's 8"},
        {Words{"--fix", "tp_size=2", "--distributed", "{strategy: fsdp2, tp_plan: {lm_head: colwize}}"},
         "heddle plan: every layout is refused: Unknown parallel style: colwize"}}) {
    const Outcome wrong = heddle(plan(plus({"--world-size", "2"}, words)));
    EXPECT_EQ(wrong.status, 2) << error;
    EXPECT_THAT(wrong.error, HasSubstr(error));
  }
}

TEST_F(Plan, ReportsThatNoLayoutFits) {
  const Outcome large =
      heddle(plan({"--world-size", "2", "--device", "RTX-4090", "--model",
                   "{dtype: bfloat16, config: {model_type: llama, vocab_size: 256, hidden_size: 8192, "
                   "intermediate_size: 28672, num_hidden_layers: 80, num_attention_heads: 64, "
                   "max_position_embeddings: 32}}"}));
  EXPECT_EQ(large.status, 2);
  EXPECT_THAT(large.error,
              HasSubstr("heddle plan: no layout fits: parameters and activations of the smallest, fsdp2, "));
  EXPECT_THAT(large.error,
              HasSubstr("\n  hint: use more ranks, a device with more memory, or a smaller model\n"));
}

TEST_F(Plan, RefusesAWorldSizeThatNoLayoutDivides) {
  const Outcome prime = heddle(plan({"--world-size", "7"}));
  EXPECT_EQ(prime.status, 2);
  EXPECT_THAT(prime.error, HasSubstr("no layout divides 7 ranks and 8 samples per step"));
  const Outcome all = heddle(plan({"--world-size", "7", "--distributed", "null"}));
  EXPECT_EQ(all.status, 2);
  EXPECT_EQ(all.error, prime.error);
  EXPECT_EQ(heddle(plan({"--world-size", "7", "--fix", "tp_size=7"})).error, prime.error);
}

TEST_F(Plan, GivesFewerLayersToASlowerMachine) {
  const std::string common =
      "memory: 80e9\nmemory_bandwidth: 3e12\npeak_16: 900e12\npeak_32: 60e12\nnode_bandwidth: 300e9\n"
      "network_bandwidth: 40e9\n";
  files_.write("fast.yaml", "device: fast\nlaunch_seconds: 2e-6\n" + common);
  files_.write("slow.yaml", "device: slow\nlaunch_seconds: 20e-6\n" + common);
  const std::string machines = files_.path("fast.yaml") + ":2," + files_.path("slow.yaml") + ":2";
  const Outcome found = heddle(plan({"--world-size", "4", "--machine", machines, "--fix", "pp_size=2",
                                     "--json", "--model.config.num_hidden_layers", "4"}));
  ASSERT_EQ(found.status, 0) << found.error << found.out;
  const json first = fitting(found).at(0);
  EXPECT_LT(first["mfu"], 100) << first;
  EXPECT_EQ(first["stage_layers"], (json{3, 1})) << first;
}

TEST_F(Plan, RefusesMachinesWithAnotherNumberOfRanks) {
  files_.write("machine.yaml", "peak_16: 1e12\n");
  const std::string file = files_.path("machine.yaml");
  for (const auto& [machines, message] :
       {std::pair(file + ":2," + file + ":1", "has 3 ranks, but --world-size is 4"),
        {file + ":3", "has 3 ranks, but --world-size is 4"},
        {file + "," + file + ":4", "has a machine without ranks"},
        {"," + file + ":4", "has an empty file name"}}) {
    const Outcome wrong = heddle(plan({"--world-size", "4", "--machine", machines}));
    EXPECT_EQ(wrong.status, 2);
    EXPECT_THAT(wrong.error, HasSubstr(message)) << machines;
  }
  const Outcome nodes = heddle(plan({"--world-size", "4", "--nodes", "3"}));
  EXPECT_EQ(nodes.status, 2);
  EXPECT_THAT(nodes.error, HasSubstr("--nodes: 3 nodes do not divide 4 ranks"));
  const Outcome devices = heddle(plan({"--world-size", "4", "--gpus-per-node", "3"}));
  EXPECT_EQ(devices.status, 2);
  EXPECT_THAT(devices.error, HasSubstr("--gpus-per-node: 4 ranks do not fill nodes of 3 devices"));
}

TEST_F(Plan, RefusesAMachineFileWithAWrongKey) {
  files_.write("machine.yaml", "peak_61: 1e12\n");
  const Outcome wrong = heddle(plan({"--world-size", "2", "--machine", files_.path("machine.yaml")}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("peak_61"));
}

TEST_F(Plan, RefusesAMachineWithoutTheFiguresOfAStep) {
  files_.write("machine.yaml", "peak_16: 1e12\npeak_32: 1e12\nmemory_bandwidth: 1e12\n");
  const Words machine = {"--machine", files_.path("machine.yaml")};
  EXPECT_EQ(heddle(plan(plus({"--world-size", "1"}, machine))).status, 0);
  const Outcome wrong = heddle(plan(plus({"--world-size", "2"}, machine)));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("heddle plan: the machine file machine does not set node_bandwidth\n"));
}

// Compares the two tables of a widely used guide to layouts, by model size, with the layouts of `heddle
// plan`.

// One row of the guide: a model of that size on H100s, and the sizes of axes that the guide recommends.
struct Row {
  const char* size;
  std::string config;
  int world, row_length, samples;
  std::vector<std::pair<const char*, std::set<std::string>>> sizes;
  // The part of the step in which the guide's best layout loses against the plan's. Empty: one of the five
  // fastest layouts of the plan is one of the guide's.
  const char* reason;
};

std::string dense(int hidden, int ffn, int layers, int heads, int length) {
  return "{model_type: llama, vocab_size: 128256, hidden_size: " + std::to_string(hidden) +
         ", intermediate_size: " + std::to_string(ffn) + ", num_hidden_layers: " + std::to_string(layers) +
         ", num_attention_heads: " + std::to_string(heads) +
         ", num_key_value_heads: 8, max_position_embeddings: " + std::to_string(length) + "}";
}

std::string mixture(int hidden, int experts, int top, int ffn, int layers, int heads) {
  return "{model_type: qwen3_moe, vocab_size: 151936, hidden_size: " + std::to_string(hidden) +
         ", intermediate_size: " + std::to_string(4 * ffn) +
         ", moe_intermediate_size: " + std::to_string(ffn) + ", num_experts: " + std::to_string(experts) +
         ", num_experts_per_tok: " + std::to_string(top) + ", num_hidden_layers: " + std::to_string(layers) +
         ", num_attention_heads: " + std::to_string(heads) +
         ", num_key_value_heads: 4, head_dim: 128, max_position_embeddings: 4096}";
}

const std::vector<Row>& rows() {
  using Sizes = std::set<std::string>;
  const Sizes one = {"1"}, tp_medium = {"2", "4"}, tp_large = {"4", "8"};
  static const std::vector<Row> all = {
      {"below 3B", dense(2048, 8192, 16, 32, 4096), 8, 4096, 64, {{"tp_size", one}, {"pp_size", one}}, ""},
      {"3 to 13B",
       dense(4096, 14336, 32, 32, 4096),
       8,
       4096,
       64,
       {{"tp_size", tp_medium}, {"pp_size", one}},
       "collectives of tp"},
      {"13 to 70B",
       dense(6144, 20480, 48, 48, 4096),
       32,
       4096,
       128,
       {{"tp_size", tp_large}, {"pp_size", {"2", "4"}}},
       "collectives of tp"},
      {"70B and more",
       dense(8192, 28672, 80, 64, 4096),
       64,
       4096,
       256,
       {{"tp_size", {"8"}}, {"pp_size", {"4", "8"}}},
       "collectives of tp"},
      {"long sequences",
       dense(4096, 14336, 32, 32, 65536),
       16,
       65536,
       16,
       {{"cp_size", {"2", "4", "8"}}},
       ""},
      {"small mixture",
       mixture(2048, 64, 8, 1024, 16, 16),
       8,
       4096,
       64,
       {{"tp_size", one}, {"pp_size", one}, {"ep_size", {"8"}}},
       "collectives of ep"},
      {"medium mixture",
       mixture(2048, 128, 8, 768, 48, 32),
       16,
       4096,
       128,
       {{"tp_size", {"1", "2"}}, {"pp_size", one}, {"ep_size", {"8"}}},
       "collectives of ep"},
      {"large mixture",
       mixture(4096, 128, 8, 1536, 94, 64),
       256,
       4096,
       1024,
       {{"tp_size", {"1", "2"}}, {"pp_size", {"4", "8", "16"}}, {"ep_size", {"8", "16", "32", "64"}}},
       "collectives of ep"}};
  return all;
}

bool is_of_guide(const json& layout, const Row& row) {
  for (const auto& [key, values] : row.sizes)
    if (!values.contains(layout["layout"][key].dump())) return false;
  return true;
}

std::vector<json> plan_of(const TrainingFiles& files, const Row& row, const Words& more) {
  files.write(
      "guide.yaml",
      "model: {dtype: bfloat16, config: " + row.config +
          "}\ndataset: {_target_: MockIterableDataset, seq_len: " + std::to_string(row.row_length) +
          ", num_samples: 100000}\nstep_scheduler: {global_batch_size: " + std::to_string(row.samples) +
          ", max_steps: 10}\noptimizer: {master_weights: true}\n"
          "distributed: {strategy: fsdp2}\ncheckpoint: {enabled: false}\n");
  const Outcome found = heddle(plus({"plan", files.path("guide.yaml"), "--world-size",
                                     std::to_string(row.world), "--device", "H100", "--top", "5", "--json"},
                                    more));
  const std::vector<json> layouts = fitting(found);
  EXPECT_EQ(found.status, layouts.empty() ? 2 : 0) << row.size << found.error;
  return layouts;
}

double part_of(const json& layout, const std::string& name) {
  return layout["parts"].contains(name) ? layout["parts"][name].get<double>() : 0;
}

// Returns the guide's fastest layout with the fewest ranks on axes other than tp and pp.
json fastest_of_guide(const TrainingFiles& files, const Row& row) {
  Words fixed;
  for (size_t i = 2; i < row.sizes.size(); ++i) {
    const auto& [key, values] = row.sizes[i];
    const auto fewest = std::min_element(
        values.begin(), values.end(),
        [](const std::string& one, const std::string& other) { return std::stoi(one) < std::stoi(other); });
    fixed = plus(fixed, {"--fix", std::string(key) + "=" + *fewest});
  }
  json fastest;
  for (const std::string& tp : row.sizes[0].second)
    for (const std::string& pp : row.sizes[1].second) {
      const std::vector<json> layouts =
          plan_of(files, row, plus(fixed, {"--fix", "tp_size=" + tp, "--fix", "pp_size=" + pp}));
      if (!layouts.empty() && (fastest.is_null() || layouts[0]["step_seconds"] < fastest["step_seconds"]))
        fastest = layouts[0];
    }
  return fastest;
}

TEST(PlanAdvice, NamesALayoutOfTheGuideOrLosesByTheGivenPart) {
  const TrainingFiles files;
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.size);
    const std::vector<json> best = plan_of(files, row, {});
    ASSERT_FALSE(best.empty());
    const bool is_named =
        std::any_of(best.begin(), best.end(), [&](const json& layout) { return is_of_guide(layout, row); });
    const std::string reason = row.reason;
    EXPECT_EQ(is_named, reason.empty()) << best[0].dump(1);
    if (is_named || reason.empty()) continue;
    const json guide = fastest_of_guide(files, row);
    ASSERT_FALSE(guide.is_null());
    const double behind = guide["step_seconds"].get<double>() - best[0]["step_seconds"].get<double>();
    EXPECT_GT(behind, 0);
    EXPECT_GT(part_of(guide, reason) - part_of(best[0], reason), behind / 3)
        << guide.dump(1) << best[0].dump(1);
  }
}

}  // namespace
}  // namespace flow
