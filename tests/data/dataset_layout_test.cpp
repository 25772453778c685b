// Files and splits found in data set directories, compared with the Hugging Face library datasets.
#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/data/texts/dataset_layout.h"
#include "lib/data/texts/file_kinds.h"
#include "lib/data/texts/file_patterns.h"
#include "tests/thrown.h"
#include "token_files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

// Returns the splits that heddle finds, in the golden file's form: the index of each file.
nlohmann::json found_in(const nlohmann::json& tree, const fs::path& directory, const std::string& config) {
  std::map<std::string, size_t> numbers;
  for (size_t k = 0; k < tree["files"].size(); ++k) numbers[tree["files"][k]] = k;
  nlohmann::json out = nlohmann::json::array();
  for (const SplitFiles& split : read_layout({directory, Node::text(directory.string()), config})) {
    nlohmann::json rows = nlohmann::json::array();
    for (const fs::path& file : split.files)
      rows.push_back(numbers.at(fs::relative(fs::canonical(file), fs::canonical(directory)).string()));
    out.push_back({split.split, rows});
  }
  return out;
}

void materialise(const nlohmann::json& tree, const fs::path& directory) {
  fs::create_directories(directory);
  for (const nlohmann::json& file : tree["files"]) put(directory / file.get<std::string>(), "{}");
  const nlohmann::json links = tree.value("links", nlohmann::json::object());
  for (const auto& [link, target] : links.items()) {
    fs::create_directories((directory / link).parent_path());
    fs::create_symlink(target.get<std::string>(), directory / link);
  }
  if (tree.contains("readme")) put(directory / "README.md", tree["readme"]);
  if (tree.contains("yaml")) put(directory / ".huggingface.yaml", tree["yaml"]);
}

TEST(DatasetLayout, EqualsThatOfTheLibraryDatasetsOrIsRefusedForItsFormat) {
  std::ifstream golden(HEDDLE_SOURCE_DIR "/tests/golden/layouts/trees.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(golden, line));  // first line: the version of datasets
  int trees = 0, equal = 0, of_format = 0;
  while (std::getline(golden, line)) {
    const nlohmann::json tree = nlohmann::json::parse(line);
    const ScratchDirectory scratch;
    const fs::path directory = scratch / "set";
    materialise(tree, directory);
    ++trees;
    for (const auto& [config, want] : tree["want"].items()) {
      nlohmann::json got;
      const std::string why = tests::thrown_by([&] { got = found_in(tree, directory, config); });
      if (!why.empty()) got = nullptr;
      const bool is_other_format = !why.empty() && why.find("heddle reads") != why.npos;
      if (is_other_format && !want.is_null())
        ++of_format;
      else if (got == want)
        ++equal;
      else
        ADD_FAILURE() << "configuration '" << config << "' of " << line << "\n  heddle: " << got << " " << why
                      << "\n  datasets: " << want;
    }
  }
  EXPECT_EQ(trees, 200);
  EXPECT_GT(equal, 390);
  EXPECT_LT(of_format, 10);
}

class DatasetLayoutRefusal : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::string& text = "{}") { put(directory_ / name, text); }
  std::string refusal(const std::string& config = "", bool is_whole = true) {
    const Node name = Node::text((directory_ / "").string(), {"run.yaml", 3, 1}, "dataset.path");
    return tests::thrown_by([&] { read_layout({directory_ / "", name, config, is_whole}); });
  }
  ScratchDirectory directory_;
};

TEST_F(DatasetLayoutRefusal, NamesTheFormatThatMostFilesHave) {
  add("a.csv");
  add("b.csv");
  add("c.jsonl");
  EXPECT_THAT(refusal(),
              HasSubstr("run.yaml:3 dataset.path: most files of the split train are .csv files; heddle reads "
                        ".json, .jsonl, .ndjson, .parquet, .geoparquet, .gpq and .arrow\n  hint: List the "
                        "data files instead: one file, or a list of files."));
}

TEST_F(DatasetLayoutRefusal, NamesSplitsOfTwoFormatsAndFilesOfAnother) {
  add("train.jsonl");
  add("test.parquet");
  EXPECT_THAT(refusal(), HasSubstr("the split train has JSON files, but the split test has Parquet files"));
  fs::remove(directory_ / "test.parquet");
  add("train-2.jsonl.gz");
  EXPECT_THAT(refusal(),
              HasSubstr("the split train has the file train-2.jsonl.gz among its JSON files, which "
                        "heddle reads by their endings"));
}

TEST_F(DatasetLayoutRefusal, NamesTheSplitWithoutDataFiles) {
  add("train.jsonl");
  add("test.rows");
  EXPECT_THAT(refusal(), HasSubstr("the split test has no data files"));
  add("README.md",
      "---\nconfigs:\n- config_name: a\n  data_files: train.jsonl\n- config_name: b\n  data_files: "
      "x/*\n---\n");
  EXPECT_THAT(refusal("b"), HasSubstr("no file matches the patterns of the split train"));
  add("README.md", "---\nconfigs:\n- config_name: a\n  data_files: no.jsonl\n---\n");
  EXPECT_THAT(refusal(),
              HasSubstr("run.yaml:3 dataset.path: the data set's card lists no.jsonl for the split "
                        "train, but no such data file exists"));
}

TEST_F(DatasetLayoutRefusal, NamesTheLoadingScript) {
  const fs::path named = directory_ / "mine";
  put(named / "mine.py", "");
  put(named / "a.jsonl", "{}");
  EXPECT_THAT(
      tests::thrown_by([&] {
        read_layout({named, Node::text(named.string())});
      }),
      HasSubstr("the data set has a loading script, mine.py, which heddle does not run\n  hint: Use another "
                "revision (revision: refs/convert/parquet), or list the data files instead."));
}

TEST_F(DatasetLayoutRefusal, NamesWhatIsWrongWithTheCard) {
  add("train.jsonl");
  add("a-b-00000-of-00001.jsonl");
  const std::string begin = "---\nconfigs:\n- config_name: default\n  ",
                    hint = "\n  hint: Correct the card, or list";
  const auto expect = [&](const std::string& card, const std::string& what) {
    add("README.md", card);
    EXPECT_THAT(refusal(), HasSubstr(what)) << card;
  };
  expect(begin + "data_files: {train: train.jsonl}\n---\n",
         "README.md:4 configs[0].data_files: data_files is ");
  expect(
      begin + "data_files: 3\n---\n",
      "data_files is 3; it takes a pattern, a list of patterns, or a list of {split: NAME, path: PATTERNS} "
      "with each split once, where NAME has letters, digits, _ and dots" +
          hint);
  expect(begin + "data_files: train.jsonl\n  field: rows\n---\n",
         "configs[0].field: the configuration sets field, which heddle does not apply\n  hint: List the data "
         "files in the recipe.");
  expect("---\nconfigs:\n- data_files: train.jsonl\n---\n", "this configuration has no config_name" + hint);
  expect("---\nconfigs: x\n---\n", "configs is 'x'; it takes a list of configurations" + hint);
  expect("---\nconfigs: [\n---\n", "YAML syntax: ");
  expect("---\nconfigs:\n- {config_name: a, default: true}\n- {config_name: b, default: true}\n---\n",
         "README.md:2 configs: the configurations a and b are both the default\n  hint: Mark only one of "
         "them as the default in the card.");
  expect(begin + "data_files: /etc/*.json\n---\n",
         "'/etc/*.json': this pattern matches files outside the data set\n  hint: Use a path inside the data "
         "set's directory.");
  expect(begin + "data_files: x/../../*.json\n---\n", "matches files outside the data set");
  expect(begin + "data_files: 'x/**.json'\n---\n",
         "'x/**.json': '**' is only a part of the path component '**.json'\n  hint: Use '**' as a whole "
         "component: data/**/*.parquet.");
}

TEST_F(DatasetLayoutRefusal, NamesTheSplitsOfTheCardThatFilesDoNotHave) {
  add("train.jsonl");
  add("README.md", "---\ndataset_info: {splits: [{name: train, num_examples: 3}, {name: more}]}\n---\n");
  EXPECT_THAT(refusal(),
              HasSubstr("dataset_info of the card lists the splits more, train, but the files have the "
                        "splits train\n  hint: Correct the card, or list the data files instead."));
  EXPECT_THAT(refusal("", false), IsEmpty());
  add("README.md", "---\ndataset_info: {splits: [{name: train, num_examples: 3}]}\n---\n");
  EXPECT_EQ(read_layout({directory_ / "", Node::text("x"), ""})[0].rows, 3);
}

TEST_F(DatasetLayoutRefusal, NamesNoKeyForTheConfigurationThatTheDataSetDoesNotHave) {
  add("a.jsonl");
  add("README.md",
      "---\nconfigs:\n- {config_name: a, data_files: a.jsonl}\n- {config_name: b, data_files: a.jsonl}\n"
      "---\n");
  const LayoutQuery query{directory_ / "", Node::text("x"), "", true, false};
  EXPECT_THAT(tests::thrown_by([&] { read_layout(query); }),
              HasSubstr("the data set has the configurations a, b, but none is the default\n  hint: List the "
                        "data files instead: one file, or a list of files."));
}

TEST_F(DatasetLayoutRefusal, NamesASplitThatIsNoWord) {
  add("data/a-b-00000-of-00001.jsonl");
  EXPECT_THAT(refusal(), HasSubstr("the file data/a-b-00000-of-00001.jsonl names the split 'a-b'; split "
                                   "names consist of letters, digits, _ and dots"));
}

TEST_F(DatasetLayoutRefusal, IsAbsentForAnotherConfigurationsFilesOfTheHubsCache) {
  add("en/a.jsonl");
  add("README.md",
      "---\nconfigs:\n- {config_name: de, data_dir: de}\n- {config_name: en, data_dir: en}\n---\n");
  EXPECT_THAT(refusal("en"), HasSubstr("de contains no data files (.json, "));
  EXPECT_THAT(refusal("en", false), IsEmpty());
}

TEST(DatasetLayout, ReadsWhatSaveToDiskWrote) {
  const ScratchDirectory directory;
  for (const char* name : {"state.json", "dataset_info.json", "data-00000-of-00001.arrow"})
    put(directory / name, "{}");
  const auto splits = read_layout({directory / "", Node::text((directory / "").string()), ""});
  ASSERT_EQ(splits.size(), 1u);
  EXPECT_EQ(splits[0].split, "train");
  ASSERT_EQ(splits[0].files.size(), 1u);
  EXPECT_THAT(splits[0].files[0].string(), EndsWith("data-00000-of-00001.arrow"));
}

TEST(FilePatterns, MatchPartsAsFnmatchOfPython) {
  EXPECT_TRUE(matches_part("a1.jsonl", "a?.*"));
  EXPECT_TRUE(matches_part("ä.jsonl", "?.jsonl"));
  EXPECT_TRUE(matches_part("ö", "[a-zä-ü]"));
  EXPECT_TRUE(matches_part("x-", "x[a-]"));
  EXPECT_TRUE(matches_part("x]", "x[]]"));
  EXPECT_TRUE(matches_part("x[", "x["));
  EXPECT_TRUE(matches_part("xb", "x[!a]"));
  EXPECT_FALSE(matches_part("xa", "x[!a]"));
  EXPECT_FALSE(matches_part("", "*"));
  EXPECT_FALSE(matches_part("xz", "x[z-a]"));
}

TEST(FilePatterns, TakeTimeInProportionToTheirLength) {
  const std::string name(20000, 'a'), pattern = [] {
    std::string out;
    for (int i = 0; i < 30; ++i) out += "a*";
    return out + "b";
  }();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(matches_part(name, pattern));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST(DatasetLayout, ReadsManyPatternsAndFilesInSeconds) {
  const ScratchDirectory directory;
  std::string card = "---\nconfigs:\n- config_name: default\n  data_files:\n";
  for (int i = 0; i < 2000; ++i) {
    put(directory / ("data/" + std::to_string(i) + ".jsonl"), "{}");
    card += "  - {split: s" + std::to_string(i) + ", path: data/" + std::to_string(i) + ".json*}\n";
  }
  put(directory / "README.md", card + "---\n");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(read_layout({directory / "", Node::text((directory / "").string()), ""}).size(), 2000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(FileKinds, KnowTheEndingsOfDatasets) {
  EXPECT_TRUE(is_data_file("x/a.jsonl.gz"));
  EXPECT_TRUE(is_data_file("a.PNG"));
  EXPECT_FALSE(is_data_file("a.Png"));
  EXPECT_FALSE(is_data_file("a.JSONL"));
  EXPECT_FALSE(is_data_file("x.json/a"));
  EXPECT_FALSE(is_data_file("a.png jpg"));
  EXPECT_TRUE(has_ending_of(FileKind::json, "a.json.old"));
  EXPECT_FALSE(has_ending_of(FileKind::json, "a.jsonx"));
}

}  // namespace
}  // namespace heddle
