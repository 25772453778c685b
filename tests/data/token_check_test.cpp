// Tokens outside the vocabulary are found before the first step. Unchanged files are not read again.
#include "lib/data/tokens/token_check.h"

#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_file.h"
#include "lib/data/tokens/token_files.h"
#include "tests/data/token_files.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<TokenDataset> one_file_dataset(const std::filesystem::path& file, int64_t length,
                                               std::optional<TokenType> bare = std::nullopt) {
  std::vector<TokenFile> files;
  files.emplace_back(file, bare);
  return std::make_shared<TokenDataset>(std::move(files), length);
}

// Returns the error of check_tokens, or "" if every token is in the vocabulary.
std::string check_refusal(const std::shared_ptr<TokenDataset>& dataset, int64_t vocabulary,
                          const std::filesystem::path& notes = "") {
  dataset->expect(vocabulary);
  const Rows rows(dataset);
  try {
    check_tokens(std::vector<const Rows*>{&rows}, vocabulary, notes);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input);
    return error.message();
  }
}

template <class T>
void write_bare(const std::filesystem::path& file, const std::vector<T>& tokens) {
  std::ofstream out(file, std::ios::binary);
  append_values(out, tokens);
}

TEST(TokenCheck, RefusesAnEndOfDocumentsOutsideTheVocabularyOrTheData) {
  const ScratchDirectory scratch;
  write_bare<uint16_t>(scratch / "t.bin", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto with_end = [&](int64_t end) {
    const Node keys = config::read_text(
        "dataset:\n  file_pattern: " + (scratch / "t*.bin").string() +
            "\n  seq_len: 4\n  dtype: uint16\n  reset_attention_at: " + std::to_string(end) + "\n",
        "run.yaml");
    DataFacts facts;
    facts.vocabulary = 10;
    return tests::thrown_by([&] { (void)token_files().make(*keys.find("dataset"), facts); });
  };
  const std::string begin = "error[config] run.yaml:5 dataset.reset_attention_at: the token ",
                    hint =
                        "\n  hint: set the id of the token that ends a document, as heddle data prints it, "
                        "or remove the key";
  EXPECT_EQ(with_end(9), "");
  EXPECT_EQ(with_end(10), begin + "10 is not in the model's vocabulary of 10" + hint);
  EXPECT_EQ(with_end(0), begin + "0 occurs nowhere in " + (scratch / "t*.bin").string() +
                             ", so no document would end" + hint);
}

// Places one bad token at several positions of a file that is longer than one block of the check.
template <class T>
void find_each(TokenType type, T bad) {
  ScratchDirectory scratch;
  const int64_t count = (1 << 20) + 77;
  for (const int64_t place : {int64_t{0}, int64_t{(1 << 20) - 1}, int64_t{1 << 20}, count - 1}) {
    std::vector<T> tokens(count, T{3});
    tokens[place] = bad;
    write_bare(scratch / "bare.bin", tokens);
    const auto dataset = one_file_dataset(scratch / "bare.bin", count - 1, type);
    EXPECT_EQ(check_refusal(dataset, 100), "token " + std::to_string(place) + " is " + std::to_string(bad) +
                                               "; the model's vocabulary has 100 tokens");
  }
}

TEST(TokenCheck, FindsTheFirstBadTokenOfEveryType) {
  find_each<uint16_t>(TokenType::uint16, 65535);
  find_each<int16_t>(TokenType::int16, -1);
  find_each<int32_t>(TokenType::int32, -5);
  find_each<uint32_t>(TokenType::uint32, 4000000000u);
  find_each<int64_t>(TokenType::int64, int64_t{1} << 40);
  find_each<int8_t>(TokenType::int8, -128);
}

TEST(TokenCheck, TakesAVocabularyThatIsJustLargeEnough) {
  ScratchDirectory scratch;
  write_bare<uint16_t>(scratch / "a.bin", {0, 1, 99, 5});
  const auto dataset = one_file_dataset(scratch / "a.bin", 2, TokenType::uint16);
  EXPECT_EQ(check_refusal(dataset, 100), "");
  EXPECT_EQ(check_refusal(dataset, 99), "token 2 is 99; the model's vocabulary has 99 tokens");
}

TEST(TokenCheck, LooksAtNoTokenThatIsInNoSample) {
  ScratchDirectory scratch;
  write_bare<uint16_t>(scratch / "a.bin", {0, 1, 2, 3, 4, 500});
  EXPECT_EQ(check_refusal(one_file_dataset(scratch / "a.bin", 2, TokenType::uint16), 100), "");
  EXPECT_THAT(check_refusal(one_file_dataset(scratch / "a.bin", 5, TokenType::uint16), 100),
              HasSubstr("token 5 is 500"));
}

TEST(TokenCheck, LooksAtTheRowsOfEveryDatasetOfAFile) {
  ScratchDirectory scratch;
  write_bare<uint16_t>(scratch / "a.bin", {0, 1, 2, 3, 4, 500});
  const auto first = one_file_dataset(scratch / "a.bin", 2, TokenType::uint16);
  const auto second = one_file_dataset(scratch / "a.bin", 5, TokenType::uint16);
  first->expect(100);
  second->expect(100);
  const Rows two(first), five(second);
  const std::vector<const Rows*> both{&two, &five};
  EXPECT_THAT(tests::thrown_by([&] { check_tokens(both, 100, ""); }), HasSubstr("token 5 is 500"));
}

TEST(TokenCheck, RemembersAFileUntilItChanges) {
  ScratchDirectory scratch;
  const auto file = scratch / "a.bin", notes = scratch / "run/.tokens.json";
  write_bare<uint16_t>(file, {0, 1, 2, 3, 4});
  const auto changed = std::filesystem::last_write_time(file);
  EXPECT_EQ(check_refusal(one_file_dataset(file, 2, TokenType::uint16), 100, notes), "");
  // The changed file keeps its size and modification time, so the check must use the cached result.
  write_bare<uint16_t>(file, {0, 1, 200, 3, 4});
  std::filesystem::last_write_time(file, changed);
  EXPECT_EQ(check_refusal(one_file_dataset(file, 2, TokenType::uint16), 100, notes), "");
  EXPECT_THAT(check_refusal(one_file_dataset(file, 2, TokenType::uint16), 3, notes),
              HasSubstr("token 2 is 200"));
  std::filesystem::last_write_time(file, changed + std::chrono::seconds(1));
  EXPECT_THAT(check_refusal(one_file_dataset(file, 2, TokenType::uint16), 100, notes),
              HasSubstr("token 2 is 200"));
  std::ofstream(notes) << "{\"broken";
  EXPECT_THAT(check_refusal(one_file_dataset(file, 2, TokenType::uint16), 100, notes),
              HasSubstr("token 2 is 200"));
}

// The vocabulary covers every value of the type, so the check neither reads the file nor caches a result.
TEST(TokenCheck, ReadsNoFileWhoseTypeFits) {
  ScratchDirectory scratch;
  write_bare<uint16_t>(scratch / "a.bin", {0, 1, 65535});
  EXPECT_EQ(
      check_refusal(one_file_dataset(scratch / "a.bin", 2, TokenType::uint16), 65536, scratch / "notes"), "");
  EXPECT_FALSE(std::filesystem::exists(scratch / "notes"));
  EXPECT_EQ(range_of(TokenType::int16).least, -32768);
}

}  // namespace
}  // namespace heddle
