// `heddle plugins new` as a program: the files that it writes, and refusals. tests/packaging builds the
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "flow/program.h"

namespace {

using flow::heddle;
using flow::Outcome;
using ::testing::HasSubstr;
using ::testing::Not;

class PluginsNew : public ::testing::Test {
 protected:
  PluginsNew() {
    std::string place = ::testing::TempDir() + "plugins_new_XXXXXX";
    place_ = mkdtemp(place.data());
  }
  ~PluginsNew() override { std::filesystem::remove_all(place_); }

  std::string at(const std::string& name) const { return (place_ / name).string(); }
  static std::string text(const std::filesystem::path& file) {
    std::ostringstream out;
    out << std::ifstream(file).rdbuf();
    return out.str();
  }

  std::filesystem::path place_;
};

TEST_F(PluginsNew, WritesAStrategyWithItsName) {
  const Outcome outcome = heddle({"plugins", "new", at("my_plan")});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out, "wrote " + at("my_plan") + "/ from the template 'strategy'; " +
                             at("my_plan/README.md") + " explains how to build and check it\n");
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(at("my_plan"))) {
    files.insert(entry.path().filename().string());
    EXPECT_THAT(text(entry.path()), Not(HasSubstr("hello"))) << entry.path();
  }
  EXPECT_EQ(files, (std::set<std::string>{"CMakeLists.txt", "README.md", "my_plan.cpp", "my_plan.h",
                                          "my_plan.yaml", "my_plan_test.cpp", "plugin.cpp"}));
  EXPECT_THAT(text(at("my_plan/my_plan.h")), HasSubstr("class MyPlan : public heddle::IStrategy"));
  EXPECT_THAT(text(at("my_plan/plugin.cpp")), HasSubstr("HEDDLE_PLUGIN(\"my_plan\", \"0.1.0\")"));
}

TEST_F(PluginsNew, WritesEveryKind) {
  for (const std::string kind : {"strategy", "sharded-strategy", "parallelizer", "schedule", "model",
                                 "optimizer", "transform", "metrics", "dataset"}) {
    const std::string name = "a_" + kind.substr(0, kind.find('-'));
    const Outcome outcome = heddle({"plugins", "new", at(name + "1"), "--kind", kind});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_TRUE(std::filesystem::exists(at(name + "1/CMakeLists.txt")));
    EXPECT_TRUE(std::filesystem::exists(at(name + "1/" + name + "1_test.cpp")));
    std::filesystem::remove_all(at(name + "1"));
  }
}

// The libraries are those of tests/examples, which are built from the unchanged templates.
TEST_F(PluginsNew, WritesARunThatUsesThePlugin) {
  for (const std::string kind :
       {"parallelizer", "schedule", "model", "optimizer", "transform", "metrics", "dataset"}) {
    ASSERT_EQ(heddle({"plugins", "new", at("hello"), "--kind", kind}).status, 0);
    flow::Words train = {"train",
                         at("hello/hello.yaml"),
                         "--nproc-per-node",
                         "2",
                         "--plugins",
                         "[" HEDDLE_BINARY_DIR "/tests/examples/libheddle_template_" + kind + ".so]",
                         "--step_scheduler.max_steps",
                         "2",
                         "--checkpoint.checkpoint_dir",
                         at("out_" + kind)};
    if (kind == "model") train.insert(train.end(), {"--model.config.model_type", "hello_type"});
    const Outcome outcome = heddle(train);
    EXPECT_EQ(outcome.status, 0) << kind << "\n" << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("step 2/2")) << kind;
    std::filesystem::remove_all(at("hello"));
  }
}

TEST_F(PluginsNew, StartsAFamilyWithTheKeysOfAConfigJson) {
  std::ofstream(at("config.json")) << R"({"model_type": "big-talk", "architectures": ["BigTalkForCausalLM"],
    "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 3, "num_attention_heads": 16, "head_dim": null,
    "rms_norm_eps": 1e-05, "hidden_act": "silu", "attention_bias": false, "transformers_version": "5.0.0",
    "rope_theta": 500000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "router": {"top": 2},
    "class": "a \"word\"", "no_rope_layers": [1, 1, 0], "shares": [0.5, 1], "sliding_window": null})";
  const Outcome outcome =
      heddle({"plugins", "new", at("talk"), "--kind", "model", "--from-hf", at("config.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::string source = text(at("talk/talk.cpp"));
  for (const std::string line :
       {"    vocab_size = 128256;\n", "    rms_norm_eps = 1e-05;\n", "    rotary.theta = 500000.0;\n",
        "    rotary.scaling = {.kind = heddle::RotaryScaling::Kind::linear, .factor = 4.0};\n",
        "  bool attention_bias = false;\n", "  decoder::add_head_dim(keys);\n",
        "  decoder::add_rotary(keys, \"big-talk\");\n", "  std::string class_ = \"a \\\"word\\\"\";\n",
        "  std::vector<int64_t> no_rope_layers = {1, 1, 0};\n", "  std::vector<double> shares = {0.5, 1};\n",
        "keys.only(\"sliding_window\", heddle::Node(),",
        "keys.only(\"router\", heddle::config::read_text(\"{\\\"top\\\": 2}\", \"config.json\"),",
        "attention.qkv_bias = attention.output_bias = keys.attention_bias;",
        "{\"big-talk\", \"BigTalkForCausalLM\", keys(),",
        "HEDDLE_PLUGIN(\"talk\", \"0.1.0\", \"model big-talk\")"})
    EXPECT_THAT(source, HasSubstr(line));
  EXPECT_THAT(source, Not(HasSubstr("transformers_version")));
  EXPECT_EQ(text(at("talk/config.json")), text(at("config.json")));
  EXPECT_THAT(text(at("talk/compare.py")), HasSubstr("REFERENCE = \"big-talk\""));
}

TEST_F(PluginsNew, RefusesAConfigJsonThatStartsNoFamily) {
  const auto refusal = [&](const std::string& json, const std::string& kind = "model") {
    std::ofstream(at("config.json")) << json;
    const Outcome outcome =
        heddle({"plugins", "new", at("talk"), "--kind", kind, "--from-hf", at("config.json")});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_FALSE(std::filesystem::exists(at("talk")));
    return outcome.error;
  };
  EXPECT_EQ(refusal("{}", "optimizer"),
            "error[usage] heddle plugins new: --from-hf starts a model family, and --kind is optimizer\n"
            "  hint: add --kind model\n");
  EXPECT_THAT(refusal("{"), HasSubstr("error[input] " + at("config.json")));
  EXPECT_EQ(refusal("{}"), "error[config] " + at("config.json") +
                               ": model_type is missing\n  hint: add the model_type that the family reads\n");
  EXPECT_EQ(refusal(R"({"model_type": "a b"})"),
            "error[config] " + at("config.json") +
                " model_type: expected letters, digits, _, - and ., got 'a b'\n"
                "  hint: give a copy of the file another model_type\n");
  EXPECT_EQ(
      refusal(R"({"model_type": "talk", "text_config": {"hidden_size": 8}})"),
      "error[config] " + at("config.json") +
          ": hidden_size, num_hidden_layers or num_attention_heads is missing; --from-hf starts families "
          "whose keys have Llama's names\n"
          "  hint: copy the map text_config into a file of its own, and name that file\n");
  const std::string sizes = R"(, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2)";
  EXPECT_THAT(refusal(R"({"model_type": "llama")" + sizes + "}"),
              HasSubstr("the model_type 'llama' of " + at("config.json") + " is a name of the plugin " +
                        HEDDLE_BINARY_DIR "/plugins/lib"));
  EXPECT_THAT(refusal(R"({"model_type": "talk", "vocab_size": "many")" + sizes + "}"),
              HasSubstr(at("config.json") + " vocab_size: expected an integer, got 'many'"));
  const Outcome absent = heddle({"plugins", "new", at("talk"), "--kind", "model", "--from-hf", at("none")});
  EXPECT_EQ(absent.status, 2);
  EXPECT_THAT(absent.error, HasSubstr(at("none") + ": cannot be read"));
}

TEST_F(PluginsNew, RefusesInvalidNamesAndExistingDirectories) {
  const Outcome spelt = heddle({"plugins", "new", "My-Plan"});
  EXPECT_EQ(spelt.status, 2);
  EXPECT_EQ(spelt.error,
            "error[usage] heddle plugins new: 'My-Plan' is not a name for a plugin\n"
            "  hint: use lowercase letters, digits and _, starting with a letter: my_strategy\n");
  EXPECT_THAT(heddle({"plugins", "new", "single"}).error, HasSubstr("'single' is built into the engine"));
  EXPECT_EQ(
      heddle({"plugins", "new", at("config"), "--kind", "optimizer"}).error,
      "error[usage] heddle plugins new: the class of 'config' would be Config, which is another class of "
      "the template\n  hint: choose another name: my_config\n");
  for (const std::string name : {"fsdp2", "mfsdp"})
    EXPECT_THAT(heddle({"plugins", "new", at(name)}).error,
                HasSubstr("'" + name + "' is a name of the plugin " + HEDDLE_BINARY_DIR + "/plugins/lib"));
  std::filesystem::create_directory(at("mine"));
  const Outcome there = heddle({"plugins", "new", at("mine")});
  EXPECT_EQ(there.status, 2);
  EXPECT_THAT(there.error, HasSubstr("'" + at("mine") + "' already exists\n  hint: choose another name"));
  const Outcome nowhere = heddle({"plugins", "new", at("no/such/mine")});
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_EQ(nowhere.error,
            "error[usage] heddle plugins new: the directory of '" + at("no/such/mine") +
                "' does not exist\n  hint: choose a name in an existing, writable directory\n");
  const Outcome odd = heddle({"plugins", "new", "mine", "--kind", "sofa"});
  EXPECT_EQ(odd.status, 2);
  EXPECT_THAT(odd.error, HasSubstr("unknown template 'sofa' for --kind\n  hint: available kinds: "));
}

}  // namespace
