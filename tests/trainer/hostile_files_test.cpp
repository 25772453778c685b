// Files that would end a trusting program: a million brackets, sizes beyond any machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/folder.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/placements.h"
#include "heddle/checkpoint/safetensors.h"
#include "trainer/loop/position.h"
#include "trainer/models/model_config.h"

namespace heddle {
namespace {

using testing::error_of;
using testing::Folder;
using ::testing::HasSubstr;

const std::string kDeep = "{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";

std::string with_length(const std::string& header) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

TEST(HostileFiles, AreRefusedWhereBracketsNestAMillionDeep) {
  const Folder folder;
  EXPECT_EQ(
      error_of(folder, [&] { SafetensorsFile file(folder.write("a", with_length(kDeep))); }),
      "error[input] FOLDER/a: the header nests deeper than 64\n  hint: write or download the file again");
  EXPECT_EQ(error_of(folder, [&] { checkpoint::read_manifest(folder.write("a", kDeep)); }),
            "error[input] FOLDER/a: is no manifest of a sharded checkpoint\n"
            "  hint: go on from another checkpoint, or copy this one again");
  EXPECT_EQ(error_of(folder, [&] { read_position(folder.write("a", kDeep)); }),
            "error[input] FOLDER/a: does not say where a run stands: it is cut or no JSON\n"
            "  hint: go on from another checkpoint, or copy this one again");
  EXPECT_EQ(error_of(folder, [&] { read_model_config(folder.write("a", kDeep)); }),
            "error[input] FOLDER/a: nests deeper than 64");
  folder.write("model.safetensors.index.json", kDeep);
  EXPECT_EQ(error_of(folder, [&] { HfWeights weights(folder.path()); }),
            "error[input] FOLDER/model.safetensors.index.json: is not JSON with a weight_map");
}

TEST(HostileFiles, AreRefusedWithAShortMessageWhereAnEntryIsLong) {
  const Folder folder;
  const std::string long_entry = "{\"a\":{\"dtype\":\"" + std::string(1'000'000, 'x') + "\"}}";
  const std::string error =
      error_of(folder, [&] { SafetensorsFile file(folder.write("a", with_length(long_entry))); });
  EXPECT_THAT(error,
              HasSubstr("tensor \"a\": expected dtype, shape and two data_offsets, got {\"dtype\":\"xxx"));
  EXPECT_LT(error.size(), 500u);
}

TEST(HostileFiles, AreRefusedWhereAModelIsLargerThanAnyThereIs) {
  const Folder folder;
  const auto refusal = [&](const std::string& more) {
    return error_of(
        folder, [&] { read_model_config(folder.write("a", "{\"model_type\": \"llama\", " + more + "}")); });
  };
  EXPECT_EQ(
      refusal("\"num_hidden_layers\": 1152921504606846976"),
      "error[input] FOLDER/a num_hidden_layers: expected a size from 1 to 100000, got 1152921504606846976");
  EXPECT_EQ(refusal("\"vocab_size\": 268435457"),
            "error[input] FOLDER/a vocab_size: expected a size from 1 to 268435456, got 268435457");
  EXPECT_THAT(refusal("\"head_dim\": 268435456, \"hidden_size\": 32"),
              HasSubstr("num_attention_heads 32 of head_dim 268435456 are more than 268435456"));
}

TEST(Placements, AreNoneWhereASizeIsNoSize) {
  const auto said = [](const std::string& shape, const std::string& offset) {
    return checkpoint::read_placements(R"({"a": {"tensor": "b", "shape": )" + shape +
                                       ", \"offset\": " + offset + "}}");
  };
  ASSERT_TRUE(said("[2]", "[0]"));
  EXPECT_EQ(said("[2]", "[0]")->at("a"), (checkpoint::Placement{"b", {2}, {0}}));
  for (const char* odd : {"[1.5]", "[1e300]", "[-1]", "[18446744073709551615]", "2", "[[2]]"}) {
    EXPECT_FALSE(said(odd, "[0]")) << odd;
    EXPECT_FALSE(said("[2]", odd)) << odd;
  }
  EXPECT_FALSE(checkpoint::read_placements(kDeep));
}

TEST(Positions, AreRefusedWhereAByteWasChanged) {
  const Folder folder;
  Position position;
  position.step = 4, position.global_batch_size = 8, position.dataset_samples = 100,
  position.sequence_length = 16;
  position.model = {{"hidden_size", "24"}};
  position.parts = {{"model", "0123456789abcdef"}};
  const std::string text = to_json(position);
  EXPECT_EQ(read_position(folder.write("a", text)), position);
  std::string changed = text;
  changed[text.find("\"step\": 4") + 8] = '6';
  EXPECT_EQ(error_of(folder, [&] { read_position(folder.write("a", changed)); }),
            "error[input] FOLDER/a: was changed after it was written: its checksum differs\n"
            "  hint: go on from another checkpoint, or copy this one again");
  for (size_t at = 0; at < text.size(); ++at) {
    changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    if (std::isspace(static_cast<unsigned char>(text[at]))) continue;
    EXPECT_THAT(error_of(folder, [&] { read_position(folder.write("a", changed)); }),
                HasSubstr("error[input] FOLDER/a: "))
        << "byte " << at;
  }
}

}  // namespace
}  // namespace heddle
