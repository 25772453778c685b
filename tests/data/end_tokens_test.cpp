// End-of-sequence tokens of exported models, at which heddle generate stops.
#include "lib/data/tokenizer/end_tokens.h"

#include <gmock/gmock.h>

#include "thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kTokenizer =
    R"({"added_tokens": [{"id": 7, "content": "<end>"}], "model": {"vocab": {"a": 0, "</s>": 1, "b": 2}}})";

NoteFiles with_tokenizer(const std::string& eos, const std::string& tokenizer = kTokenizer) {
  return {{"config.json", "{}"},
          {"tokenizer.json", tokenizer},
          {"tokenizer_config.json", R"({"eos_token": ")" + eos + R"(", "model_max_length": Infinity})"}};
}

TEST(EndTokens, AreThoseOfGenerationConfigThenOfConfigThenOfTheTokenizer) {
  NoteFiles files = with_tokenizer("<end>");
  EXPECT_THAT(stop_tokens(files), ElementsAre(7));
  files["tokenizer_config.json"] = R"({"eos_token": {"content": "</s>"}})";
  EXPECT_THAT(stop_tokens(files), ElementsAre(1));
  files["config.json"] = R"({"eos_token_id": 2})";
  EXPECT_THAT(stop_tokens(files), ElementsAre(2));
  files["generation_config.json"] = R"({"eos_token_id": [4, 5], "length_penalty": Infinity})";
  EXPECT_THAT(stop_tokens(files), ElementsAre(4, 5));
  EXPECT_THAT(stop_tokens(NoteFiles{}), IsEmpty());
}

TEST(EndTokens, AreFoundInEachFormOfAVocabulary) {
  EXPECT_THAT(stop_tokens(with_tokenizer("b", R"({"model": {"vocab": [["a", 0.0], ["b", -1.5]]}})")),
              ElementsAre(1));
  NoteFiles decoder = with_tokenizer("x", R"({"model": {"vocab": {}}})");
  decoder["tokenizer_config.json"] = R"({"eos_token": "x", "added_tokens_decoder": {"9": {"content": "x"}}})";
  EXPECT_THAT(stop_tokens(decoder), ElementsAre(9));
  EXPECT_THAT(stop_tokens(with_tokenizer("absent")), IsEmpty());
}

TEST(NoteEndTokens, WritesThemWhereTheFilesNameNone) {
  NoteFiles files = with_tokenizer("<end>");
  note_end_tokens(files, files, -1);
  EXPECT_EQ(files["config.json"], "{\n  \"eos_token_id\": 7\n}\n");
  NoteFiles trained = with_tokenizer("<end>");
  trained["generation_config.json"] = R"({"top_p": 0.5, "eos_token_id": null})";
  note_end_tokens(trained, trained, 2);  // end token of the data set
  EXPECT_EQ(trained["config.json"], "{\n  \"eos_token_id\": 2\n}\n");
  EXPECT_EQ(trained["generation_config.json"], "{\n  \"top_p\": 0.5,\n  \"eos_token_id\": 2\n}\n");
}

TEST(NoteEndTokens, LeavesFilesThatNameThemAsTheyAre) {
  NoteFiles files = with_tokenizer("<end>");
  files["config.json"] = R"({"eos_token_id":2})";
  const NoteFiles before = files;
  note_end_tokens(files, before, 7);
  EXPECT_EQ(files, before);
}

// Id 1 is the same token in both vocabularies, id 2 differs.
TEST(NoteEndTokens, FollowsTheTokenizerOfTheData) {
  NoteFiles own = with_tokenizer("</s>");
  own["config.json"] = R"({"eos_token_id": [1, 2]})";
  NoteFiles files =
      with_tokenizer("<end>", R"({"model": {"vocab": {"a": 0, "</s>": 1, "c": 2, "<end>": 3}}})");
  files["config.json"] = own["config.json"];
  NoteFiles trained = files;
  note_end_tokens(files, own, -1);
  EXPECT_THAT(stop_tokens(files), ElementsAre(1, 3));
  note_end_tokens(trained, own, 2);
  EXPECT_THAT(stop_tokens(trained), ElementsAre(1, 2));
}

// The tokenizers share one vocabulary, but the data's end token differs from the tokenizer's.
TEST(NoteEndTokens, AddsAnotherEndTokenOfTheData) {
  NoteFiles files = with_tokenizer("</s>");
  files["config.json"] = R"({"eos_token_id": 1})";
  NoteFiles same = files;
  note_end_tokens(files, files, 7);
  EXPECT_THAT(stop_tokens(files), ElementsAre(1, 7));
  note_end_tokens(same, same, 1);
  EXPECT_EQ(same["config.json"], R"({"eos_token_id": 1})");
}

TEST(NoteEndTokens, RefusesFilesThatAreNoObjects) {
  NoteFiles files = with_tokenizer("<end>");
  files["generation_config.json"] = "[]";
  EXPECT_EQ(tests::thrown_by([&] { note_end_tokens(files, files, -1); }),
            "error[input] generation_config.json: is not a JSON object\n  hint: copy the file again");
}

}  // namespace
}  // namespace heddle
