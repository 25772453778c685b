// JSON of model directories as Python's json module writes it.
#include "lib/checkpoint/huggingface/hf_json.h"

#include <gmock/gmock.h>

#include <cmath>

#include "folder.h"
#include "heddle/base/error.h"
#include "lib/checkpoint/huggingface/hf_plan.h"
#include "lib/checkpoint/huggingface/read_config.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr const char* kPythonWords =
    R"({"a": [Infinity, -Infinity, NaN], "b": "NaN \"Infinity\" -Infinity", "c": 0.5})";

TEST(HfJson, ReadsTheWordsOfPythonOutsideStrings) {
  const ordered_json read = checkpoint::parse_hf_json(kPythonWords, "config.json");
  EXPECT_EQ(read["a"][0], std::numeric_limits<double>::infinity());
  EXPECT_EQ(read["a"][1], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(read["a"][2].get<double>()));
  EXPECT_EQ(read["b"], "NaN \"Infinity\" -Infinity");
}

TEST(HfJson, ReadsTheFormOfTransformers) {
  const ordered_json read = checkpoint::parse_hf_json(
      R"({"a": {"__float__": "-Infinity"}, "b": {"__float__": "large"}, "c": {"__float__": "NaN", "d": 1}})",
      "");
  EXPECT_EQ(read["a"], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(read["b"].dump(), R"({"__float__":"large"})");
  EXPECT_EQ(read["c"].dump(), R"({"__float__":"NaN","d":1})");
}

TEST(HfJson, WritesTheWordsOfPython) {
  const ordered_json read = checkpoint::parse_hf_json(kPythonWords, "config.json");
  EXPECT_EQ(checkpoint::write_hf_json(read, -1),
            R"({"a":[Infinity,-Infinity,NaN],"b":"NaN \"Infinity\" -Infinity","c":0.5})");
  EXPECT_EQ(checkpoint::write_hf_json(read["a"]), "[\n  Infinity,\n  -Infinity,\n  NaN\n]");
}

TEST(HfJson, WritesOtherValuesAsTheLibraryDoes) {
  const ordered_json value = {{"z", {1, -2, 3.5, true, nullptr, "\u00e9\n"}},
                              {"a", ordered_json::object()},
                              {"b", ordered_json::array()},
                              {"c", {{"d", {{"e", 1e-5}}}}}};
  for (const int indent : {-1, 0, 1, 2})
    EXPECT_EQ(checkpoint::write_hf_json(value, indent), value.dump(indent));
}

TEST(HfJson, KeepsTheLastOfRepeatedKeysAndTheOrderOfTheOthers) {
  EXPECT_EQ(checkpoint::parse_hf_json(R"({"b": 1, "a": 2, "b": {"c": 3}})", "").dump(),
            R"({"b":{"c":3},"a":2})");
}

TEST(HfJson, RefusesWhatPythonRefuses) {
  for (const char* text : {R"({"a": Infinity2})", R"({"a": -NaN})", R"({"a": infinity})", R"({"a": nan})",
                           "{", "", R"({"a": 1} 2)"})
    EXPECT_THROW(checkpoint::parse_hf_json(text, "config.json"), Error) << text;
  EXPECT_FALSE(checkpoint::hf_json_if_valid("{"));
  const tests::Folder folder;
  const auto read = [&](const std::string& bytes) {
    return tests::error_of(folder, [&] { checkpoint::read_hf_json(folder.write("a.json", bytes)); });
  };
  EXPECT_EQ(read("[1]"), "error[input] FOLDER/a.json: is not a JSON object\n  hint: copy the file again");
  EXPECT_THAT(read("{"), HasSubstr("error[input] FOLDER/a.json: is not JSON: "));
  EXPECT_EQ(read("{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}"),
            "error[input] FOLDER/a.json: nests deeper than 64\n  hint: copy the file again");
}

TEST(ConfigJson, ReadsNumbersThatAreNotFinite) {
  const Node keys = checkpoint::parse_config_json(kPythonWords, "config.json");
  EXPECT_TRUE(std::isinf(keys.find("a")->items()[0].as_real()));
  EXPECT_LT(keys.find("a")->items()[1].as_real(), 0);
  EXPECT_TRUE(std::isnan(keys.find("a")->items()[2].as_real()));
  EXPECT_EQ(keys.find("b")->as_text(), "NaN \"Infinity\" -Infinity");
}

TEST(ConfigJson, IsExportedWithNumbersThatAreNotFinite) {
  checkpoint::HfOrigin origin;
  origin.files["config.json"] = R"({"dtype": "float32", "limit": [0.0, Infinity], "other": NaN})";
  const auto exported = [&](at::ScalarType dtype) {
    checkpoint::Manifest manifest;
    manifest.tensors["w"] = {dtype, {2}, {}};
    return checkpoint::plan_hf(manifest, origin, {}).config;
  };
  EXPECT_EQ(exported(at::kFloat), origin.files["config.json"]);
  EXPECT_EQ(
      exported(at::kBFloat16),
      "{\n  \"dtype\": \"bfloat16\",\n  \"limit\": [\n    0.0,\n    Infinity\n  ],\n  \"other\": NaN\n}\n");
}

TEST(HfOrigin, KeepsNamedChatTemplatesAndNumbersThatAreNotFinite) {
  const tests::Folder folder;
  checkpoint::HfOrigin origin;
  origin.files = {{"config.json", "{}"},
                  {"chat_template.jinja", "plain"},
                  {"additional_chat_templates/tool_use.jinja", "tools"}};
  origin.index = R"({"loss":NaN})";
  origin.tensors["w"] = {"model.safetensors", at::kFloat};
  checkpoint::keep_origin(folder / "kept", origin);
  std::filesystem::create_directory(folder / "kept/additional_chat_templates/deep.jinja");
  EXPECT_EQ(checkpoint::kept_origin(folder / "kept"), origin);
}

}  // namespace
}  // namespace heddle
