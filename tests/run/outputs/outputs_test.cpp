// Outputs of a run and of `heddle data`: files that heddle did not write are never replaced.
#include "lib/run/preflight/preflight.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <sstream>

#include "checkpoint/folder.h"
#include "lib/data/outputs.h"
#include "lib/data/tokens/token_check.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_writer.h"
#include "lib/data/tokens/write_tokens.h"
#include "lib/drawing/chrome_trace.h"
#include "lib/report/loss_curve.h"
#include "lib/report/metrics.h"
#include "lib/report/metrics_files.h"
#include "lib/run/checkpointing/run_lock.h"
#include "run/outputs/output_run.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tests::error_of;
using tests::Folder;
using tests::OutputRun;

constexpr const char* kMine = "mine\n";

std::string text_in(const fs::path& file) {
  std::stringstream out;
  out << std::ifstream(file, std::ios::binary).rdbuf();
  return out.str();
}

const std::vector<std::string> kBeside = {
    "training.jsonl", "validation.jsonl", "loss.svg",           ".lock",           ".tokens.json",
    "LATEST",         "LATEST.txt",       ".LATEST.new",        ".LATEST.txt.new", "LOWEST_VAL",
    "LOWEST_VAL.txt", ".LOWEST_VAL.new",  ".LOWEST_VAL.txt.new"};

TEST(Outputs, RefuseToReplaceAUsersFileInTheCheckpointDirectory) {
  const OutputRun run;
  std::vector<std::string> names = kBeside;
  names.insert(names.end(), {"epoch_0_step_1.incomplete", "epoch_7_step_99.removed"});
  for (const std::string& name : names) {
    const fs::path file = run.folder.write("run/" + name, kMine);
    const std::string refusal = run.refusal();
    EXPECT_THAT(refusal, StartsWith("error[config] checkpoint.checkpoint_dir: FOLDER/run/" + name +
                                    " exists and contains no "));
    EXPECT_THAT(refusal,
                HasSubstr("\n  hint: move it away, or give checkpoint.checkpoint_dir another directory"));
    EXPECT_EQ(text_in(file), kMine);
    fs::remove(file);
    fs::create_directories(file / "mine");
    const std::string place = "error[config] checkpoint.checkpoint_dir: FOLDER/run/" + name;
    EXPECT_THAT(run.refusal(),
                ::testing::AnyOf(StartsWith(place + " is "), StartsWith(place + " exists and contains no ")));
    fs::remove_all(file);
  }
  EXPECT_EQ(run.refusal(), "no error");
}

// Writes the files as a run does.
TEST(Outputs, ReplaceFilesOfAnEarlierRun) {
  const OutputRun run;
  const Folder& folder = run.folder;
  folder.write("run/training.jsonl", to_json(TrainingRecord{}, "now") + "\n");
  folder.write("run/validation.jsonl", to_json(ValidationRecord{}, "now") + "\n");
  folder.write("run/loss.svg", loss_curve_svg({}, {}));
  { const RunLock lock(folder / "run"); }
  std::vector<TokenFile> files;
  files.emplace_back(folder / "train.bin", std::nullopt);
  const auto samples = std::make_shared<TokenDataset>(std::move(files), 8);
  samples->expect(256);
  const Rows dataset(samples);
  const std::vector<const Rows*> datasets{&dataset};
  check_tokens(datasets, 256, folder / "run/.tokens.json");
  ASSERT_TRUE(fs::exists(folder / "run/.tokens.json"));
  fs::create_directories(folder / "run/epoch_0_step_9.incomplete/model");
  fs::create_directory_symlink("epoch_0_step_9", folder / "run/LOWEST_VAL");
  folder.write("run/.LOWEST_VAL.txt.new", "epoch_0_step_9\n");
  EXPECT_EQ(run.refusal(), "no error");
  folder.write("trace.json", schedule::chrome_file("", "{\"schedule\":\"1f1b\"}"));
  folder.write("metrics.jsonl", to_json(TrainingRecord{}, "now") + "\n");
  EXPECT_EQ(run.refusal({folder / "metrics.jsonl", folder / "trace.json"}), "no error");
  EXPECT_EQ(run.refusal({"/dev/null", "/dev/null"}), "no error");
}

TEST(Outputs, RefuseToReplaceAFileOfAnotherKind) {
  const OutputRun run;
  const fs::path svg = run.folder.write("other.svg", "<svg></svg>"),
                 trace = run.folder.write("trace.json", "{\"traceEvents\": []}"),
                 notes = run.folder.write("notes.txt", kMine);
  for (const fs::path& file : {svg, trace, notes}) {
    const std::string before = text_in(file), name = "FOLDER/" + file.filename().string();
    EXPECT_EQ(run.refusal({file, ""}),
              "error[usage] --metrics: " + name +
                  " exists and contains no metrics\n  hint: choose a file that does not exist");
    EXPECT_EQ(run.refusal({"", file}),
              "error[usage] --trace: " + name +
                  " exists and contains no trace of heddle\n  hint: choose a file that does not exist");
    EXPECT_EQ(text_in(file), before);
  }
  fs::create_symlink(notes, run.folder / "link");
  EXPECT_THAT(run.refusal({"", run.folder / "link"}),
              HasSubstr("FOLDER/link exists and contains no trace of heddle"));
  fs::create_directory(run.folder / "directory");
  EXPECT_THAT(run.refusal({"", run.folder / "directory"}), HasSubstr("FOLDER/directory is a directory"));
}

TEST(Outputs, RefuseOneFileForTwoOutputs) {
  const OutputRun run;
  const fs::path same = run.folder / "same";
  fs::create_symlink("same", run.folder / "link");
  for (const fs::path& trace : {same, run.folder / "run/../same", run.folder / "link"})
    EXPECT_THAT(
        run.refusal({same, trace}),
        HasSubstr("error[usage] --trace: FOLDER/" + trace.lexically_relative(run.folder.path()).string() +
                  " is used for two outputs: the trace of heddle, and the metrics of --metrics"))
        << trace;
}

TEST(Outputs, RefuseAFileOfTheRun) {
  const OutputRun run;
  for (const std::string& name : kBeside) {
    const fs::path file = run.folder / ("run/" + name);
    EXPECT_THAT(run.refusal({"", file}),
                StartsWith("error[usage] --trace: FOLDER/run/" + name +
                           " is used for two outputs: the trace of heddle, and the "));
    if (name == "training.jsonl") continue;  // metrics go to this file
    EXPECT_THAT(run.refusal({file, ""}), StartsWith("error[usage] --metrics: FOLDER/run/" + name +
                                                    " is used for two outputs: the metrics, and the "));
  }
  for (const char* name : {"epoch_0_step_3", "epoch_0_step_3.incomplete"})
    EXPECT_EQ(run.refusal({"", run.folder / ("run/" + std::string(name))}),
              "error[usage] --trace: FOLDER/run/" + std::string(name) +
                  " has the name of a checkpoint of the run\n  hint: choose another file");
  EXPECT_THAT(
      run.refusal({run.folder / "run", ""}),
      HasSubstr("FOLDER/run is used for two outputs: the metrics, and the directory of checkpoints of "
                "checkpoint.checkpoint_dir"));
}

TEST(Outputs, RefuseInputsAsOutputs) {
  const OutputRun run;
  run.refusal();  // writes run.yaml
  EXPECT_EQ(run.refusal({"", run.folder / "run.yaml"}),
            "error[usage] --trace: FOLDER/run.yaml is the configuration itself, which would be lost\n"
            "  hint: choose another file");
  EXPECT_THAT(run.refusal({run.folder / "train.bin", ""}),
              HasSubstr("FOLDER/train.bin is a token file of the run itself, which would be lost"));
}

TEST(Outputs, RefuseAMissingDirectory) {
  const OutputRun run;
  EXPECT_EQ(run.refusal({run.folder / "no/m.jsonl", ""}),
            "error[usage] --metrics: the directory of FOLDER/no/m.jsonl does not exist\n"
            "  hint: create it first: mkdir -p FOLDER/no");
  EXPECT_FALSE(fs::exists(run.folder / "no"));
  EXPECT_THAT(
      run.refusal({"", run.folder / "text.txt/trace"}),
      HasSubstr("the directory of FOLDER/text.txt/trace is a file\n  hint: choose a file in a directory"));
  fs::remove(run.folder / "run");
  EXPECT_EQ(run.refusal({run.folder / "run/m.jsonl", ""}), "no error");  // the run creates the directory
}

TEST(Outputs, RefuseAFileInPlaceOfADirectory) {
  const OutputRun run;
  run.folder.write("file", kMine);
  const std::string file = (run.folder / "file").string();
  EXPECT_EQ(
      run.refusal({}, ", staging_dir: " + file),
      "error[config] FOLDER/run.yaml:6 checkpoint.staging_dir: FOLDER/file exists and is not a directory\n"
      "  hint: choose a directory, or a path that does not exist");
  fs::remove(run.folder / "run");
  run.folder.write("run", kMine);
  for (const char* below : {"", "/below"})
    EXPECT_EQ(run.refusal({}, below),
              "error[config] checkpoint.checkpoint_dir: FOLDER/run exists and is not a directory\n"
              "  hint: choose a directory, or a path that does not exist");
  EXPECT_EQ(text_in(run.folder / "run"), kMine);
}

TEST(Outputs, DoNotReplaceAUsersFileByData) {
  const Folder folder;
  const std::vector<Input> inputs = {{folder.write("text.txt", kMine), "the text 'text.txt'"}};
  const auto refusal = [&](const char* out, bool force = true) {
    return error_of(folder, [&] { check_target(folder / out, inputs, force); });
  };
  folder.write("x.bin.part", kMine);
  for (const bool force : {true, false})
    EXPECT_EQ(refusal("x.bin", force),
              "error[usage] --out: FOLDER/x.bin.part exists and contains no unfinished token file\n"
              "  hint: move it away, or choose another file: --out FILE");
  EXPECT_EQ(text_in(folder / "x.bin.part"), kMine);
  fs::create_symlink(folder / "text.txt", folder / "link.txt");
  fs::create_hard_link(folder / "text.txt", folder / "hard.txt");
  fs::create_hard_link(folder / "text.txt", folder / "new.bin.part");
  for (const auto& [out, lost] : {std::pair{"text.txt", "text.txt"},
                                  {"link.txt", "link.txt"},
                                  {"hard.txt", "hard.txt"},
                                  {"new.bin", "new.bin.part"}})
    for (const bool force : {true, false})
      EXPECT_EQ(refusal(out, force), "error[usage] --out: FOLDER/" + std::string(lost) +
                                         " is the text 'text.txt' itself, which would be lost\n"
                                         "  hint: choose another file");
  EXPECT_THAT(refusal("no/x.bin"), HasSubstr("the directory of FOLDER/no/x.bin does not exist"));
  fs::create_directory(folder / "directory");
  EXPECT_THAT(refusal("directory"), HasSubstr("FOLDER/directory is a directory"));
  folder.write("there.bin", kMine);
  EXPECT_THAT(refusal("there.bin", false), HasSubstr("FOLDER/there.bin: already exists"));
  for (const auto content : {TokenWriter::Content::bytes, TokenWriter::Content::tokens}) {
    TokenWriter killed(folder / "own.bin", 2, content);
    killed.write(std::vector<uint32_t>(1 << 16, 1));
    EXPECT_EQ(refusal("own.bin"), "no error");
    killed.finish();
    fs::copy_file(folder / "own.bin", folder / "done.bin.part", fs::copy_options::overwrite_existing);
    EXPECT_EQ(refusal("done.bin"), "no error");  // its name shows that the writing ended before the rename
  }
}

TEST(Outputs, RefuseTheModelsDirectoryForCheckpoints) {
  const OutputRun run;
  const Folder& folder = run.folder;
  fs::copy(HEDDLE_SOURCE_DIR "/tests/golden/llama", folder / "run", fs::copy_options::recursive);
  fs::create_directory_symlink("run", folder / "link");
  for (const char* name : {"run", "link", "link/", "./run/."}) {
    const std::string model = "{pretrained_model_name_or_path: " + (folder.path() / name).string() + "}";
    EXPECT_EQ(run.refusal({}, "", model),
              "error[config] checkpoint.checkpoint_dir: FOLDER/run is the directory of the model that the "
              "run starts from and would contain two models\n  hint: set checkpoint.checkpoint_dir to "
              "another directory");
    EXPECT_EQ(run.refusal({}, "/below", model), "no error");
    EXPECT_EQ(run.refusal({}, ", enabled: false", model), "no error");
  }
  EXPECT_THAT(run.refusal({"", folder / "run/config.json"}, "/below",
                          "{pretrained_model_name_or_path: " + (folder / "run").string() + "}"),
              HasSubstr("FOLDER/run/config.json is a file of the model itself, which would be lost"));
}

}  // namespace
}  // namespace heddle
