// Token files of each format, and the error of each broken header.
#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "lib/data/tokens/token_file.h"
#include "lib/data/tokens/token_writer.h"
#include "lib/data/tokens/write_tokens.h"
#include "tests/data/token_files.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int64_t>;

Tokens all_of(const TokenFile& file) {
  Tokens out(file.size());
  file.read(0, out);
  return out;
}

// Returns the text of the Error{input} that opening the file throws, or "" if it opens.
std::string file_refusal(const std::filesystem::path& file, std::optional<TokenType> bare = std::nullopt) {
  try {
    TokenFile opened(file, bare);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input);
    EXPECT_THAT(error.where(), HasSubstr(file.stem().string()));
    return error.what();
  }
}

TEST(TokenFile, ReadsNanogptFiles) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "a.bin", {20240520, 1, 4}, {7, 65535, 0, 9});
  const TokenFile file(scratch / "a.bin", std::nullopt);
  EXPECT_THAT(all_of(file), ElementsAre(7, 65535, 0, 9));
}

TEST(TokenFile, ReadsAutomodelFilesOfTwoAndFourBytes) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "two.bin", {278895051, 1, 2, 2}, {7, 65535});
  write_token_file<uint32_t>(scratch / "four.bin", {278895051, 1, 2, 4}, {7, 128000});
  EXPECT_THAT(all_of(TokenFile(scratch / "two.bin", std::nullopt)), ElementsAre(7, 65535));
  EXPECT_THAT(all_of(TokenFile(scratch / "four.bin", std::nullopt)), ElementsAre(7, 128000));
}

TEST(TokenFile, ReadsBareIntegersOfTheTypeGiven) {
  ScratchDirectory scratch;
  std::ofstream out(scratch / "bare.bin", std::ios::binary);
  append_values<uint16_t>(out, {1, 2, 3});
  out.close();
  EXPECT_THAT(all_of(TokenFile(scratch / "bare.bin", TokenType::uint16)), ElementsAre(1, 2, 3));
}

// Writes two sequences of 3 and 2 int32 tokens.
void write_megatron(const std::filesystem::path& stem, int64_t second_place, uint64_t version = 1) {
  std::ofstream bin(stem.string() + ".bin", std::ios::binary);
  append_values<int32_t>(bin, {10, 11, 12, 20, 21});
  std::ofstream idx(stem.string() + ".idx", std::ios::binary);
  idx.write("MMIDIDX\0\0", 9);
  append_values<uint64_t>(idx, {version});
  append_values<uint8_t>(idx, {4});
  append_values<uint64_t>(idx, {2, 3});
  append_values<int32_t>(idx, {3, 2});
  append_values<int64_t>(idx, {0, second_place});
  append_values<int64_t>(idx, {0, 1, 2});
}

TEST(TokenFile, ReadsMegatronsSequencesAsOneStream) {
  ScratchDirectory scratch;
  write_megatron(scratch / "mega", 12);
  EXPECT_THAT(all_of(TokenFile(scratch / "mega.bin", std::nullopt)), ElementsAre(10, 11, 12, 20, 21));
}

TEST(TokenFile, RefusesAMegatronIndexWithAGap) {
  ScratchDirectory scratch;
  write_megatron(scratch / "mega", 16);
  EXPECT_THAT(file_refusal(scratch / "mega.bin"), HasSubstr("sequence 1 does not follow the one before it"));
}

TEST(TokenFile, RefusesAMegatronIndexOfAnotherVersion) {
  ScratchDirectory scratch;
  write_megatron(scratch / "mega", 12, 7);
  EXPECT_THAT(file_refusal(scratch / "mega.bin"), HasSubstr("version 7 of the format; 1 is known"));
}

TEST(TokenFile, RefusesACutMegatronIndex) {
  ScratchDirectory scratch;
  write_megatron(scratch / "mega", 12);
  std::filesystem::resize_file(scratch / "mega.idx", 30);
  EXPECT_THAT(file_refusal(scratch / "mega.bin"), HasSubstr("the index is truncated"));
}

TEST(TokenFile, RefusesAMegatronIndexThatTheBinDoesNotFill) {
  ScratchDirectory scratch;
  write_megatron(scratch / "mega", 12);
  std::filesystem::resize_file(scratch / "mega.bin", 16);
  EXPECT_THAT(file_refusal(scratch / "mega.bin"),
              HasSubstr("the index says 5 tokens of 4 bytes; the .bin next to it has 16 bytes"));
}

TEST(TokenFile, RefusesAWrongMagic) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "a.bin", {1234, 1, 1}, {7});
  const std::string message = file_refusal(scratch / "a.bin");
  EXPECT_THAT(message,
              HasSubstr("not a token file: it begins with the number 1234, not with 20240520 (nanoGPT) or "
                        "278895051 (AutoModel)"));
  EXPECT_THAT(message, HasSubstr("dataset.dtype"));
}

TEST(TokenFile, RefusesAWrongVersion) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "a.bin", {20240520, 2, 1}, {7});
  EXPECT_THAT(file_refusal(scratch / "a.bin"), HasSubstr("version 2 of the format; 1 is known"));
}

TEST(TokenFile, RefusesAFileCutInItsTokens) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "a.bin", {20240520, 1, 100}, {7, 8});
  EXPECT_THAT(file_refusal(scratch / "a.bin"),
              HasSubstr("the file is truncated: the header says 100 tokens of 2 bytes, so 1224 bytes in all; "
                        "the file has 1028"));
}

TEST(TokenFile, RefusesAFileCutInItsHeader) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "a.bin", {20240520, 1, 100}, {});
  std::filesystem::resize_file(scratch / "a.bin", 500);
  EXPECT_THAT(file_refusal(scratch / "a.bin"),
              HasSubstr("the file is truncated: it has 500 bytes, but its header alone has 1024"));
}

TEST(TokenFile, RefusesBytesThatAreLeftOver) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "a.bin", {20240520, 1, 1}, {7, 8});
  EXPECT_THAT(file_refusal(scratch / "a.bin"), HasSubstr("the file has extra bytes"));
}

TEST(TokenFile, RefusesThreeBytesAToken) {
  ScratchDirectory scratch;
  write_token_file<uint16_t>(scratch / "a.bin", {278895051, 1, 1, 3}, {7});
  EXPECT_THAT(file_refusal(scratch / "a.bin"),
              HasSubstr("the header says 3 bytes per token, but must say 2 or 4"));
}

TEST(TokenFile, RefusesAnOddNumberOfBareBytes) {
  ScratchDirectory scratch;
  std::ofstream(scratch / "bare.bin", std::ios::binary) << "abc";
  EXPECT_THAT(file_refusal(scratch / "bare.bin", TokenType::uint16),
              HasSubstr("the file has 3 bytes, which is not a multiple of the 2 bytes of a token"));
}

TEST(TokenFile, RefusesAMissingFile) {
  ScratchDirectory scratch;
  EXPECT_THAT(file_refusal(scratch / "none.bin"), HasSubstr("cannot be opened: No such file or directory"));
}

TEST(WriteByteTokens, JoinsTextsByteByByte) {
  ScratchDirectory scratch;
  std::ofstream(scratch / "one.txt", std::ios::binary) << "a\n";
  std::ofstream(scratch / "two.txt", std::ios::binary) << "\xff";
  const std::vector<std::string> texts = {(scratch / "one.txt").string(), (scratch / "two.txt").string()};
  EXPECT_EQ(write_byte_tokens(texts, scratch / "out.bin"), 3);
  const TokenFile file(scratch / "out.bin", std::nullopt);
  EXPECT_THAT(all_of(file), ElementsAre(97, 10, 255));
  EXPECT_TRUE(file.holds_bytes());
  EXPECT_FALSE(std::filesystem::exists(scratch / "out.bin.part"));
}

TEST(TokenWriter, WritesTokensOfTwoAndFourBytes) {
  ScratchDirectory scratch;
  for (const int width : {2, 4}) {
    TokenWriter writer(scratch / "out.bin", width, TokenWriter::Content::tokens);
    const std::vector<uint32_t> one = {1, 65535}, two = {width == 4 ? 70000u : 7u};
    writer.write(one);
    writer.write(two);
    EXPECT_EQ(writer.size(), 3);
    writer.finish();
    const TokenFile file(scratch / "out.bin", std::nullopt);
    EXPECT_THAT(all_of(file), ElementsAre(1, 65535, two[0]));
    EXPECT_FALSE(file.holds_bytes());
  }
}

TEST(TokenWriter, LeavesTheOldFileUntilItIsFinished) {
  ScratchDirectory scratch;
  std::ofstream(scratch / "out.bin") << "old";
  {
    TokenWriter writer(scratch / "out.bin", 2, TokenWriter::Content::tokens);
    writer.write(std::vector<uint32_t>{1, 2, 3});
    EXPECT_TRUE(std::filesystem::exists(scratch / "out.bin.part"));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "out.bin.part"));
  EXPECT_EQ(std::filesystem::file_size(scratch / "out.bin"), 3u);
}

TEST(WriteByteTokens, SaysThatADiskIsFull) {
  ScratchDirectory scratch;
  std::ofstream(scratch / "one.txt", std::ios::binary) << std::string(1 << 20, 'a');
  std::filesystem::create_symlink("/dev/full", scratch / "out.bin.part");
  const std::vector<std::string> texts = {(scratch / "one.txt").string()};
  EXPECT_THAT(tests::thrown_by([&] { write_byte_tokens(texts, scratch / "out.bin"); }),
              ::testing::AllOf(HasSubstr("error[io]"), HasSubstr("cannot be written")));
}

}  // namespace
}  // namespace heddle
