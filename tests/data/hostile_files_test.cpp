// Malicious files: a million nested brackets, sizes beyond any memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "checkpoint/folder.h"
#include "core/plugin/manifest.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/safetensors.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "lib/checkpoint/sharded/placements.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_file.h"
#include "lib/data/tokens/write_tokens.h"
#include "lib/run/spec/position.h"
#include "tests/built_plugins.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::error_of;
using tests::Folder;

const std::string kDeep = "{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";

std::string with_length(const std::string& header) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

std::shared_ptr<const ModelSpec> read_model(const std::filesystem::path& config_json) {
  return engine::read_model(config_json, tests::built_plugins());
}

TEST(HostileFiles, AreRefusedWhereBracketsNestAMillionDeep) {
  const Folder folder;
  EXPECT_EQ(
      error_of(folder, [&] { SafetensorsFile file(folder.write("a", with_length(kDeep))); }),
      "error[input] FOLDER/a: the header nests deeper than 64\n  hint: write or download the file again");
  EXPECT_EQ(error_of(folder, [&] { checkpoint::read_manifest(folder.write("a", kDeep)); }),
            "error[input] FOLDER/a: is not a manifest of a sharded checkpoint\n"
            "  hint: resume from another checkpoint, or copy this one again");
  EXPECT_EQ(error_of(folder, [&] { read_position(folder.write("a", kDeep)); }),
            "error[input] FOLDER/a: contains no valid position of a run: it is truncated or not JSON\n"
            "  hint: resume from another checkpoint, or copy this one again");
  EXPECT_EQ(error_of(folder, [&] { read_model(folder.write("a", kDeep)); }),
            "error[input] FOLDER/a: nests deeper than 64\n  hint: copy the file again");
  folder.write("model.safetensors.index.json", kDeep);
  EXPECT_EQ(error_of(folder, [&] { HfWeights weights(folder.path()); }),
            "error[input] FOLDER/model.safetensors.index.json: is not JSON with a weight_map");
}

TEST(HostileFiles, AreRefusedUnopenedWhereTheyAreFifosDirectoriesSocketsOrDevices) {
  const Folder folder;
  const auto place = [&](const char* name) { return folder.path() / name; };
  for (const char* name : {"fifo", "model.safetensors.index.json", "a.bin", "LATEST", "libheddle_a.so"})
    ASSERT_EQ(::mkfifo(place(name).c_str(), 0600), 0);
  const std::string fifo =
      ": is a FIFO, but must be a regular file\n  hint: write its data to a file, and name that file";
  EXPECT_EQ(error_of(folder, [&] { SafetensorsFile file(place("fifo")); }),
            "error[input] FOLDER/fifo" + fifo);
  EXPECT_EQ(error_of(folder, [&] { checkpoint::read_manifest(place("fifo")); }),
            "error[input] FOLDER/fifo" + fifo);
  EXPECT_EQ(error_of(folder, [&] { read_position(place("fifo")); }), "error[input] FOLDER/fifo" + fifo);
  EXPECT_EQ(error_of(folder, [&] { read_model(place("fifo")); }), "error[input] FOLDER/fifo" + fifo);
  EXPECT_EQ(error_of(folder, [&] { TokenFile(place("a.bin"), std::nullopt); }),
            "error[input] FOLDER/a.bin" + fifo);
  const std::vector<std::string> text = {folder.write("text.txt", "warp and weft").string()};
  write_byte_tokens(text, place("tokens.bin"));
  EXPECT_EQ(
      error_of(folder, [&] { read_lengths(place("fifo"), TokenFile(place("tokens.bin"), std::nullopt)); }),
      "error[input] FOLDER/fifo" + fifo);
  EXPECT_EQ(error_of(folder, [&] { HfWeights weights(folder.path()); }),
            "error[input] FOLDER/model.safetensors.index.json" + fifo);
  EXPECT_EQ(error_of(folder, [&] { plugin::read_manifest(place("libheddle_a.so")); }),
            "error[plugin_failed] FOLDER/libheddle_a.so" + fifo);
  EXPECT_EQ(checkpoint::pointed(place("LATEST")), "");
  std::filesystem::create_directory(place("directory"));
  EXPECT_EQ(error_of(folder, [&] { TokenFile(place("directory"), std::nullopt); }),
            "error[input] FOLDER/directory: is a directory, but must be a regular file\n"
            "  hint: name a file in it");
  EXPECT_EQ(error_of(folder, [&] { TokenFile("/dev/zero", std::nullopt); }),
            "error[input] /dev/zero: is a device, but must be a regular file");
  ::sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(place("socket").string().size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, place("socket").c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const ::sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(error_of(folder, [&] { TokenFile(place("socket"), std::nullopt); }),
            "error[input] FOLDER/socket: is a socket, but must be a regular file");
  ::close(listener);
}

TEST(HostileFiles, AreRefusedWhereThePathsOfAConfigJsonGrow) {
  const Folder folder;
  std::string wide = "{\"model_type\": \"llama\", \"" + std::string(100'000, 'k') + "\": [1";
  for (int i = 0; i < 1000; ++i) wide += ",1";
  EXPECT_EQ(error_of(folder, [&] { read_model(folder.write("a", wide + "]}")); }),
            "error[input] FOLDER/a: its keys and values take more than 67108864 bytes");
  std::filesystem::resize_file(folder.write("a", "{}"), uint64_t{1} << 40);
  EXPECT_EQ(error_of(folder, [&] { read_model(folder.path() / "a"); }),
            "error[input] FOLDER/a: has 1099511627776 bytes; at most 16777216 are read");
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
    return error_of(folder,
                    [&] { read_model(folder.write("a", "{\"model_type\": \"llama\", " + more + "}")); });
  };
  EXPECT_EQ(refusal("\"num_hidden_layers\": 1152921504606846976"),
            "error[input] FOLDER/a num_hidden_layers: expected 1 to 100000, got 1152921504606846976");
  EXPECT_EQ(refusal("\"vocab_size\": 268435457"),
            "error[input] FOLDER/a vocab_size: expected 1 to 268435456, got 268435457");
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
            "  hint: resume from another checkpoint, or copy this one again");
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
