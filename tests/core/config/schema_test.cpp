// Sections bound to structs: types, ranges, defaults, unknown keys, and fields that are not built.
#include "heddle/config/schema.h"

#include <gtest/gtest.h>

#include "heddle/config/axes.h"
#include "heddle/config/common_fields.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using tests::thrown_by;

struct Options {
  bool on = true;
  int64_t count = 2;
  double share = 0.5;
  std::string name = "fast";
  std::optional<bool> maybe;
  std::optional<int64_t> limit;
  std::vector<std::string> words = {"a"};
  std::vector<std::vector<std::string>> groups;
  DTypeWord dtype;
  std::string mode = "up_front";
  Node raw;
};

ConfigSchema<Options> schema() {
  return ConfigSchema<Options>()
      .field("on", &Options::on, "A switch.")
      .field("count", &Options::count, "A number.", Range<int64_t>{0, 8})
      .field("share", &Options::share, "A part.", at_least(0.0))
      .field("name", &Options::name, "A name.")
      .field("maybe", &Options::maybe, "A switch or nothing.")
      .field("limit", &Options::limit, "A bound.", at_least<int64_t>(1))
      .field("words", &Options::words, "Words.")
      .field("groups", &Options::groups, "Words in groups.")
      .field("dtype", &Options::dtype, "A dtype.")
      .field("mode", &Options::mode, "A choice.", OneOf{{"up_front", "behind"}})
      .field("raw", &Options::raw, "Anything.")
      .later("share", "comes later");
}

Options read(const std::string& yaml) {
  return schema().read(*config::read_text("s: " + yaml, "f").find("s"));
}
std::string schema_refusal(const std::string& yaml) {
  return thrown_by([&] { read(yaml); });
}

TEST(Schema, HasDefaultsForAnEmptySection) {
  EXPECT_EQ(
      config::to_json(schema().write(read("{}"))),
      R"({"on": true, "count": 2, "share": 0.5, "name": "fast", "maybe": null, "limit": null, "words": ["a"], )"
      R"("groups": [], "dtype": null, "mode": "up_front", "raw": null})");
}

TEST(Schema, ReadsValuesAndWritesThemInSchemaOrder) {
  const Options options = read(
      "{raw: {x: 1}, mode: Behind, dtype: torch.BFloat16, groups: [[a], [b, c]], words: [], "
      "limit: 3, maybe: false, name: slow, share: 1, count: 8, on: no}");
  EXPECT_EQ(
      config::to_json(schema().write(options)),
      R"({"on": false, "count": 8, "share": 1.0, "name": "slow", "maybe": false, "limit": 3, "words": [], )"
      R"("groups": [["a"], ["b", "c"]], "dtype": "bfloat16", "mode": "behind", "raw": {"x": 1}})");
}

TEST(Schema, RefusesWrongTypesWithTheKeyAndTheValue) {
  EXPECT_EQ(schema_refusal("{on: 1}"), "error[config] f:1 s.on: expected true or false, got 1");
  EXPECT_EQ(schema_refusal("{on: null}"), "error[config] f:1 s.on: expected true or false, got null");
  EXPECT_EQ(schema_refusal("{on: 'yes'}"), "error[config] f:1 s.on: expected true or false, got 'yes'");
  EXPECT_EQ(schema_refusal("{count: 2.0}"),
            "error[config] f:1 s.count: expected an integer, got 2.0\n  hint: write 2");
  EXPECT_EQ(schema_refusal("{count: true}"), "error[config] f:1 s.count: expected an integer, got true");
  EXPECT_EQ(schema_refusal("{share: .inf}"), "error[config] f:1 s.share: expected a finite number, got .inf");
  EXPECT_EQ(schema_refusal("{name: 3}"), "error[config] f:1 s.name: expected a word, got 3");
  EXPECT_EQ(schema_refusal("{words: a}"), "error[config] f:1 s.words: expected a list of word, got 'a'");
  EXPECT_EQ(schema_refusal("{groups: [[a], b]}"),
            "error[config] f:1 s.groups[1]: expected a list of word, got 'b'");
  EXPECT_EQ(schema_refusal("[1]"), "error[config] f:1 s: expected a map, got a list");
  EXPECT_EQ(schema_refusal("null"), "error[config] f:1 s: expected a map, got null");
}

TEST(Schema, RefusesValuesOutOfRange) {
  EXPECT_EQ(schema_refusal("{count: 9}"), "error[config] f:1 s.count: expected 0 to 8, got 9");
  EXPECT_EQ(schema_refusal("{count: -1}"), "error[config] f:1 s.count: expected 0 to 8, got -1");
  EXPECT_EQ(schema_refusal("{limit: 0}"), "error[config] f:1 s.limit: expected at least 1, got 0");
  EXPECT_EQ(schema_refusal("{limit: null, count: 0}"), "");
}

TEST(Schema, RefusesAWordOutOfTheListWithTheNearest) {
  EXPECT_EQ(schema_refusal("{mode: behnd}"),
            "error[config] f:1 s.mode: expected one of up_front, behind, got 'behnd'\n  hint: did you mean "
            "'behind'?");
  EXPECT_EQ(read("{mode: UP-FRONT}").mode, "up_front");
}

TEST(Schema, RefusesUnknownKeysWithTheNearest) {
  EXPECT_EQ(schema_refusal("\n  on: true\n  cuont: 3\n"),
            "error[config] f:3 s.cuont: unknown key 'cuont'\n  hint: did you mean 'count'?");
  EXPECT_EQ(schema_refusal("{zzzzzzzz: 3}"),
            "error[config] f:1 s.zzzzzzzz: unknown key 'zzzzzzzz'\n  hint: the keys are on, count, share, "
            "name, maybe, "
            "limit, words, groups, dtype, mode, raw");
}

TEST(Schema, ListsLaterFieldsThatAreNotAtTheirDefault) {
  EXPECT_TRUE(schema().not_built(read("{share: 0.5}")).empty());
  EXPECT_EQ(schema().not_built(read("{share: 0.25}")), std::vector<std::string>{"share: comes later"});
}

// The message has the place of the first key that it names and that is set.
TEST(Schema, PassesTheWholeSectionToARule) {
  const auto ruled =
      schema().rule([](const Options& o) { return o.on && o.count == 0 ? "on needs a count" : ""; });
  const Node section = *config::read_text("s: {count: 0}", "f").find("s");
  EXPECT_EQ(thrown_by([&] { ruled.read(section); }), "error[config] f:1 s.count: on needs a count");
}

TEST(Schema, ReportsEveryRuleWithAnUnknownKey) {
  const auto ruled = schema()
                         .rule([](const Options& o) { return o.count == 0 ? "a count is needed" : ""; })
                         .rule([](const Options& o) { return o.on ? "it is on" : ""; });
  const auto said = [&](const std::string& yaml) {
    return thrown_by([&] { ruled.read(*config::read_text("s: " + yaml, "f").find("s")); });
  };
  EXPECT_EQ(said("{count: 0}"),
            "error[config] f:1 s.count: a count is needed\nerror[config] f:1 s: it is on");
  EXPECT_NE(said("{count: 0, zzzzzzzz: 1}").find("error[config] f:1 s: it is on"), std::string::npos);
  EXPECT_EQ(said("{coun: 1, on: true}").find("it is on"), std::string::npos);  // a misspelling of count
  EXPECT_EQ(said("{count: many}").find("it is on"), std::string::npos);
}

TEST(Schema, ListsTheDeclaredFields) {
  const ConfigSchema<Options> table = schema();
  const FieldInfo& count = table.fields()[1];
  EXPECT_EQ(count.key + "|" + count.type + "|" + count.default_value + "|" + count.range + "|" + count.help,
            "count|integer|2|0 to 8|A number.");
  EXPECT_EQ(table.fields()[5].type, "integer or null");
  EXPECT_EQ(table.fields()[2].later, "comes later");
}

TEST(Schema, RefusesAKeyThatIsBoundTwice) {
  EXPECT_EQ(thrown_by([] { schema().field("on", &Options::on, ""); }),
            "error[internal] schema: the key 'on' is bound twice");
  EXPECT_EQ(thrown_by([] { schema().later("off", ""); }),
            "error[internal] schema: no field has the key 'off'");
}

std::string dtype(const std::string& word) {
  return read("{dtype: " + word + "}").dtype.word;
}

TEST(DType, AcceptsTorchsNamesInAnyCase) {
  const std::pair<const char*, const char*> rows[] = {{"float", "float32"},
                                                      {"float32", "float32"},
                                                      {"Float64", "float64"},
                                                      {"double", "float64"},
                                                      {"half", "float16"},
                                                      {"float16", "float16"},
                                                      {"bfloat16", "bfloat16"},
                                                      {"BF16", "bfloat16"},
                                                      {"int", "int32"},
                                                      {"int64", "int64"},
                                                      {"torch.long", "int64"},
                                                      {"short", "int16"},
                                                      {"uint8", "uint8"},
                                                      {"TORCH.FLOAT", "float32"},
                                                      {"torch.bfloat16", "bfloat16"},
                                                      {"complex64", "complex64"},
                                                      {"null", ""},
                                                      {"none", ""}};
  for (const auto& [word, meant] : rows) EXPECT_EQ(dtype(word), meant) << word;
}

TEST(DType, SuggestsANameForAnUnknownWord) {
  const std::pair<const char*, const char*> rows[] = {{"fp16", "float16"}, {"FP32", "float32"},
                                                      {"f16", "float16"},  {"torch.bf16", "bfloat16"},
                                                      {"bfloat", "float"}, {"flaot32", "float32"}};
  for (const auto& [word, meant] : rows)
    EXPECT_EQ(thrown_by([&] { dtype(word); }), "error[config] f:1 s.dtype: unknown dtype '" +
                                                   std::string(word) + "'\n  hint: did you mean '" + meant +
                                                   "'?");
  EXPECT_EQ(thrown_by([] { dtype("16"); }), "error[config] f:1 s.dtype: expected a dtype, got 16");
}

struct Shared {
  MixedPrecision policy;
  std::optional<MixedPrecision> maybe;
  CheckpointingScope scope;
};
ConfigSchema<Shared> shared_schema() {
  return ConfigSchema<Shared>()
      .field("policy", &Shared::policy, "")
      .field("maybe", &Shared::maybe, "")
      .field("scope", &Shared::scope, "");
}
std::string shared(const std::string& yaml, size_t field) {
  const Node section = *config::read_text("s: " + yaml, "f").find("s");
  return config::to_json(shared_schema().write(shared_schema().read(section)).entries()[field].second);
}

TEST(MixedPrecision, HasNoDefaultsInAMap) {
  EXPECT_EQ(
      shared("{policy: {}}", 0),
      R"({"param_dtype": null, "reduce_dtype": null, "output_dtype": null, "cast_forward_inputs": false})");
  EXPECT_EQ(
      shared("{policy: {_target_: torch.distributed.fsdp.MixedPrecisionPolicy, param_dtype: bf16}}", 0),
      R"({"param_dtype": "bfloat16", "reduce_dtype": null, "output_dtype": null, "cast_forward_inputs": false})");
  EXPECT_EQ(shared("{maybe: null}", 1), "null");
}

TEST(MixedPrecision, RefusesAnotherTarget) {
  EXPECT_EQ(thrown_by([] { shared("{policy: {_target_: torch.Other}}", 0); }),
            "error[config] f:1 s.policy._target_: unknown class 'torch.Other'\n"
            "  hint: write MixedPrecisionPolicy, or remove _target_");
  EXPECT_EQ(thrown_by([] { shared("{policy: bf16}", 0); }),
            "error[config] f:1 s.policy: expected a map, got 'bf16'");
  EXPECT_EQ(
      thrown_by([] { shared("{policy: {param_dtyp: bf16}}", 0); }),
      "error[config] f:1 s.policy.param_dtyp: unknown key 'param_dtyp'\n  hint: did you mean 'param_dtype'?");
}

TEST(CheckpointingScope, IsReadAsInRecipes) {
  const std::pair<const char*, const char*> rows[] = {
      {"null", R"(["all"])"},
      {"auto", R"(["all"])"},
      {"''", R"(["all"])"},
      {"[]", R"(["all"])"},
      {"Language+vision", R"(["language", "vision"])"},
      {"'audio, audio'", R"(["audio"])"},
      {"[multimodal, 'vision,audio']", R"(["multimodal", "vision", "audio"])"},
      {"default", R"(["all"])"}};
  for (const auto& [yaml, json] : rows)
    EXPECT_EQ(shared("{scope: " + std::string(yaml) + "}", 2), json) << yaml;
}

TEST(CheckpointingScope, RefusesWhatRecipesRefuse) {
  const auto refused = [](const std::string& yaml) {
    return thrown_by([&] { shared("{scope: " + yaml + "}", 2); });
  };
  EXPECT_EQ(refused("'all,vision'"),
            "error[config] f:1 s.scope: activation_checkpointing_scope='all' cannot be combined "
            "with other scopes.");
  EXPECT_EQ(refused("3"),
            "error[config] f:1 s.scope: activation_checkpointing_scope must be a string or list of strings.");
  EXPECT_EQ(refused("[3]"),
            "error[config] f:1 s.scope[0]: activation_checkpointing_scope entries must be strings.");
  EXPECT_EQ(
      refused("[x]"),
      "error[config] f:1 s.scope[0]: activation_checkpointing_scope must use only: all, audio, language, "
      "multimodal, vision. Got 'x'.");
}

TEST(Sizes, FindAnAxisByName) {
  Sizes sizes;
  sizes.dp = 4, sizes.dp_replicate = 2, sizes.dp_shard = 2, sizes.cp = 3, sizes.tp = 5;
  EXPECT_EQ(sizes.of("tp"), 5);
  EXPECT_EQ(sizes.of("dp_cp"), 12);
  EXPECT_EQ(sizes.of("dp_shard_cp"), 6);
  EXPECT_EQ(thrown_by([&] { sizes.of("dp_shrd"); }),
            "error[mesh] mesh: unknown axis 'dp_shrd'; the axes are pp, dp, dp_replicate, dp_shard, cp, tp, "
            "ep, ep_shard, "
            "dp_shard_cp, dp_cp, world\n  hint: did you mean 'dp_shard'?");
}

}  // namespace
}  // namespace heddle
