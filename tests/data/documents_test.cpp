// Documents of text files, of lines and of JSON lines. Errors about UTF-8 and JSON name the file and the
// line.
#include "lib/data/document_reader.h"

#include <gmock/gmock.h>

#include <fstream>

#include "heddle/base/error.h"
#include "tests/data/token_files.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using DocumentTexts = std::vector<std::string>;

class Documents : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
    return (scratch_ / name).string();
  }
  static DocumentTexts all_of(const DocumentTexts& files, const DocumentForm& form = {}) {
    DocumentReader reader(files, form);
    DocumentTexts out;
    for (std::string document; reader.next(document);) out.push_back(document);
    return out;
  }
  // Returns the error's text without the directory.
  std::string refusal(const DocumentTexts& files, const DocumentForm& form = {}) const {
    try {
      all_of(files, form);
    } catch (const Error& error) {
      std::string text = error.what();
      const std::string place = (scratch_ / "").string();
      for (size_t at = text.find(place); at != text.npos; at = text.find(place)) text.erase(at, place.size());
      return text;
    }
    return "";
  }

 private:
  ScratchDirectory scratch_;
};

TEST_F(Documents, AreRefusedInShortMessagesWhenLinesAreLong) {
  const std::string page(2'000'000, 'x');
  for (const std::string& line : {"\"" + page, "{\"a\": \"" + page + "\\q\"}", "{\"" + page + "\": 1}"}) {
    const std::string said = refusal({file("long.jsonl", line + "\n")});
    EXPECT_EQ(said.substr(0, 29), "error[input] long.jsonl:1: th");
    EXPECT_LT(said.size(), 1500u);
  }
}

TEST_F(Documents, AreWholeFilesByteForByte) {
  EXPECT_THAT(all_of({file("a", "one\r\ntwo\n\n"), file("b", ""), file("c", "\xef\xbb\xbfthree")}),
              ElementsAre("one\r\ntwo\n\n", "three"));
}

TEST_F(Documents, AreLinesWithoutTheirEnds) {
  EXPECT_THAT(all_of({file("a", "\xef\xbb\xbfone\r\n\n two \n"), file("b", "three")}, {.lines = true}),
              ElementsAre("one", " two ", "three"));
}

TEST_F(Documents, AreFieldsOfJsonLines) {
  const std::string rows =
      "{\"text\": \"a\\u00e9\\n\", \"id\": 1}\r\n\n  \n{\"id\": 2, \"text\": \"\"}\n{\"text\": \"b\"}";
  EXPECT_THAT(all_of({file("a.jsonl", rows)}), ElementsAre("a\u00e9\n", "b"));
  EXPECT_THAT(all_of({file("a.txt", rows)}, {.field = "text"}), ElementsAre("a\u00e9\n", "b"));
  EXPECT_THAT(all_of({file("b.jsonl", "{\"text\": 1}\n")}, {.lines = true}), ElementsAre("{\"text\": 1}"));
}

TEST_F(Documents, CountTheBytesRead) {
  DocumentReader reader({file("a", "one\ntwo"), file("b", "\n\n")}, {.lines = true});
  for (std::string document; reader.next(document);) continue;
  EXPECT_EQ(reader.bytes(), 9);
}

TEST_F(Documents, NameTheLineThatIsNotUtf8) {
  const std::string hint = "\n  hint: convert the file to UTF-8, for example: iconv -f LATIN1 -t UTF-8 FILE";
  EXPECT_EQ(refusal({file("a", "one\ntwo\ncaf\xe9 au lait\n")}),
            "error[input] a:3: byte 4 of the line, 0xe9, is not UTF-8" + hint);
  EXPECT_EQ(refusal({file("a", "one\nt\xffo")}, {.lines = true}),
            "error[input] a:2: byte 2 of the line, 0xff, is not UTF-8" + hint);
  EXPECT_EQ(refusal({file("a.jsonl", "{\"text\": \"\xc3\"}")}),
            "error[input] a.jsonl:1: byte 11 of the line, 0xc3, is not UTF-8" + hint);
}

TEST_F(Documents, NameTheLineThatIsNoJson) {
  const std::string good = "{\"text\": \"a\"}\n";
  EXPECT_EQ(refusal({file("a.jsonl", good + "{\"text\": }\n")}),
            "error[input] a.jsonl:2: the line is not JSON: parse error at line 1, column 10: syntax error "
            "while parsing "
            "value - unexpected '}'; expected '[', '{', or a literal\n"
            "  hint: each line must be one JSON object; for plain text remove --field");
  EXPECT_EQ(refusal({file("a.jsonl", good + "[1]\n")}),
            "error[input] a.jsonl:2: expected a JSON object, got array");
  EXPECT_EQ(refusal({file("a.jsonl", good + "\n{\"text\": 7}\n")}),
            "error[input] a.jsonl:3: the field 'text' must contain text, but contains number");
  EXPECT_EQ(refusal({file("a", "{\"id\": 1, \"body\": \"b\"}")}, {.field = "text"}),
            "error[input] a:1: there is no field 'text'; the fields are: body, id\n"
            "  hint: set --field NAME to the field that contains the text");
  EXPECT_EQ(refusal({file("a.jsonl", std::string(100000, '['))}),
            "error[input] a.jsonl:1: brackets nest too deep");
}

TEST_F(Documents, NameAFileThatCannotBeRead) {
  EXPECT_EQ(refusal({"/no/such"}), "error[input] /no/such: cannot be read: No such file or directory");
  EXPECT_EQ(refusal({"/tmp"}), "error[input] /tmp: cannot be read: Is a directory");
}

TEST(Utf8, EndsAtTheFirstByteThatBeginsNoCharacter) {
  const std::string good = "a\u00e9\u20ac\U0001f600 \ud7ff\ue000\U0010ffff and more of plain text";
  EXPECT_EQ(valid_utf8(good), good.size());
  for (const char* bad : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                          "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
                          "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xe2\x28\xa1", "\xf0\x9f\x98\x28"}) {
    EXPECT_EQ(valid_utf8(good + bad), good.size()) << ::testing::PrintToString(std::string(bad));
    EXPECT_EQ(valid_utf8(good + bad + good), good.size()) << ::testing::PrintToString(std::string(bad));
  }
}

}  // namespace
}  // namespace heddle
