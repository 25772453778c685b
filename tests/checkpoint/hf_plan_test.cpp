// Plan of a Hugging Face export: file names, dtypes and tensor order, before any tensor is read.
#include "lib/checkpoint/huggingface/hf_plan.h"

#include <c10/core/ScalarType.h>
#include <gmock/gmock.h>

#include "checkpoint/folder.h"
#include "checkpoint/toy_spec.h"

namespace heddle {
namespace {

using checkpoint::HfChoice;
using checkpoint::HfOrigin;
using checkpoint::HfPlan;
using checkpoint::Manifest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Names = std::vector<std::string>;

// Returns a manifest of 2x2 tensors.
Manifest saved(const Names& names, at::ScalarType dtype = at::kFloat) {
  Manifest manifest;
  for (const std::string& name : names) manifest.tensors[name] = {dtype, {2, 2}, {}};
  return manifest;
}

HfOrigin original(const std::vector<std::pair<std::string, std::string>>& files,
                  at::ScalarType dtype = at::kFloat) {
  HfOrigin origin;
  origin.index = "{\"total_size\":1}";
  for (const auto& [tensor, file] : files) origin.tensors[tensor] = {file, dtype};
  return origin;
}

Names files_of(const HfPlan& plan) {
  Names names;
  for (const auto& file : plan.files) names.push_back(file.name);
  return names;
}

Names tensors_of(const checkpoint::HfFile& file) {
  Names names;
  for (const auto& tensor : file.tensors) names.push_back(tensor.name);
  return names;
}

TEST(HfPlan, KeepsTheFilesOfTheOriginalAndPutsNewTensorsIntoTheLast) {
  const HfPlan plan = checkpoint::plan_hf(saved({"a", "b", "c", "new"}),
                                          original({{"a", "model-00002-of-00002.safetensors"},
                                                    {"b", "model-00001-of-00002.safetensors"},
                                                    {"c", "model-00001-of-00002.safetensors"}}),
                                          {});
  EXPECT_THAT(files_of(plan),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_THAT(tensors_of(plan.files[0]), ElementsAre("b", "c"));
  EXPECT_THAT(tensors_of(plan.files[1]), ElementsAre("a", "new"));
  EXPECT_THAT(plan.index, HasSubstr("\"total_size\": 64"));
  EXPECT_THAT(plan.index, HasSubstr("\"new\": \"model-00002-of-00002.safetensors\""));
}

TEST(HfPlan, UnderstandsNamesAsQwenHasThem) {
  const HfPlan plan = checkpoint::plan_hf(saved({"a", "b", "c"}),
                                          original({{"a", "model.safetensors-00001-of-00010.safetensors"},
                                                    {"b", "model.safetensors-00002-of-00010.safetensors"},
                                                    {"gone", "model.safetensors-00005-of-00010.safetensors"},
                                                    {"c", "model.safetensors-00010-of-00010.safetensors"}}),
                                          {});
  EXPECT_THAT(files_of(plan), ElementsAre("model.safetensors-00001-of-00003.safetensors",
                                          "model.safetensors-00002-of-00003.safetensors",
                                          "model.safetensors-00003-of-00003.safetensors"));
  EXPECT_THAT(files_of(checkpoint::plan_hf(saved({"a", "b"}),
                                           original({{"a", "model.safetensors-00002-of-00003"},
                                                     {"b", "model.safetensors-00003-of-00003"}}),
                                           {})),
              ElementsAre("model.safetensors-00001-of-00002", "model.safetensors-00002-of-00002"));
}

TEST(HfPlan, LeavesASingleFileSingleAndNamesOfNoPatternAlone) {
  const HfPlan single = checkpoint::plan_hf(saved({"a", "b"}), original({{"a", "model.safetensors"}}), {});
  EXPECT_THAT(files_of(single), ElementsAre("model.safetensors"));
  EXPECT_EQ(single.index, "");
  const HfPlan named = checkpoint::plan_hf(
      saved({"a", "b"}), original({{"a", "body.safetensors"}, {"b", "head.safetensors"}}), {});
  EXPECT_THAT(files_of(named), ElementsAre("body.safetensors", "head.safetensors"));
}

TEST(HfPlan, CutsBySizeInTheOrderOfTheModelAndLeavesALargeTensorAlone) {
  Manifest manifest = saved({"lm_head.weight", "model.embed_tokens.weight", "model.layers.10.w",
                             "model.layers.2.w", "model.norm.weight"});
  manifest.tensors["model.layers.2.w"].shape = {50, 2};
  tests::ToySpec model;
  for (const char* name : {"model.embed_tokens.weight", "model.layers.2.w", "model.layers.10.w",
                           "model.norm.weight", "lm_head.weight"})
    model.parameters.emplace_back(name, std::vector<int64_t>{2, 2});
  const HfPlan plan = checkpoint::plan_hf(manifest, {}, {.max_file_bytes = 40}, &model);
  EXPECT_THAT(files_of(plan),
              ElementsAre("model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                          "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"));
  EXPECT_THAT(tensors_of(plan.files[0]), ElementsAre("model.embed_tokens.weight"));
  EXPECT_THAT(tensors_of(plan.files[1]), ElementsAre("model.layers.2.w"));
  EXPECT_THAT(tensors_of(plan.files[2]), ElementsAre("model.layers.10.w", "model.norm.weight"));
  EXPECT_THAT(tensors_of(plan.files[3]), ElementsAre("lm_head.weight"));
  EXPECT_THAT(plan.index, HasSubstr("\"total_parameters\": 116,\n    \"total_size\": 464"));
}

TEST(HfPlan, RestoresDtypesAndGivesNewTensorsTheCommonOne) {
  HfOrigin origin = original({{"a", "model.safetensors"}, {"b", "model.safetensors"}}, at::kBFloat16);
  origin.tensors["c"] = {"model.safetensors", at::kFloat};
  origin.files["config.json"] = "{\"torch_dtype\":\"bfloat16\"}";
  Manifest manifest = saved({"a", "b", "c", "new", "steps"});
  manifest.tensors["steps"].dtype = at::kLong;
  manifest.tensors["small"] = {at::ScalarType::Float8_e4m3fn, {2, 2}, {}};
  const HfPlan plan = checkpoint::plan_hf(manifest, origin, {});
  EXPECT_THAT(tensors_of(plan.files[0]), ElementsAre("steps", "c", "a", "b", "new", "small"));
  EXPECT_EQ(plan.files[0].tensors[1].dtype, at::kFloat);
  EXPECT_EQ(plan.files[0].tensors[4].dtype, at::kBFloat16);
  EXPECT_EQ(plan.config, "{\"torch_dtype\":\"bfloat16\"}");
  const HfPlan asked = checkpoint::plan_hf(manifest, origin, {.dtype = at::kHalf});
  EXPECT_EQ(asked.files[0].tensors[0].dtype, at::kLong);
  EXPECT_EQ(asked.files[0].tensors[1].dtype, at::kHalf);
  EXPECT_EQ(asked.files[0].tensors[5].dtype, at::ScalarType::Float8_e4m3fn);
  EXPECT_EQ(asked.config, "{\n  \"torch_dtype\": \"float16\"\n}\n");
}

TEST(HfPlan, WritesAConfigThatTransformers4Reads) {
  HfOrigin origin;
  origin.files["config.json"] =
      R"({"dtype":"float32","rope_parameters":{"rope_type":"default","rope_theta":5.0}})";
  const HfChoice choice{.config = HfChoice::Config::readable_by_v4};
  EXPECT_EQ(checkpoint::plan_hf(saved({"a"}), origin, choice).config,
            "{\n  \"dtype\": \"float32\",\n  \"rope_parameters\": {\n    \"rope_type\": \"default\",\n"
            "    \"rope_theta\": 5.0\n  },\n  \"torch_dtype\": \"float32\",\n  \"rope_theta\": 5.0,\n"
            "  \"rope_scaling\": null\n}\n");
}

TEST(HfOrigin, ComesBackAsItWasKept) {
  const tests::Folder folder;
  HfOrigin origin = original({{"a", "model-00001-of-00001.safetensors"}}, at::kBFloat16);
  origin.files = {{"config.json", "{}"}, {"modeling_mine.py", "import torch\n"}, {"merges.txt", "a b\n"}};
  checkpoint::keep_origin(folder / "kept", origin);
  EXPECT_EQ(checkpoint::kept_origin(folder / "kept"), origin);
  folder.write("kept/tensors.json",
               "{\"index\": null, \"tensors\": {\"a\": {\"file\": \"../b\", \"dtype\": \"F32\"}}}");
  EXPECT_EQ(tests::error_of(folder, [&] { checkpoint::kept_origin(folder / "kept"); }),
            "error[input] FOLDER/kept/tensors.json: tensor \"a\": expected a dtype and the name of a file");
  folder.write("kept/tensors.json", "{\"index\": null}");
  EXPECT_THAT(
      tests::error_of(folder, [&] { checkpoint::kept_origin(folder / "kept"); }),
      HasSubstr("hint: copy the checkpoint again, or remove the file: an export then chooses files by "
                "size"));
}

}  // namespace
}  // namespace heddle
