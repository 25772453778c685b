// Refusals of checkpoints that other programs wrote.
#include "lib/run/model/foreign_checkpoint.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "checkpoint/folder.h"
#include "lib/data/tokens/token_header.h"
#include "lib/run/model/find_model.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tests::error_of;
using tests::Folder;

struct Foreign {
  std::vector<std::string> names;  // of files under foreign/
  std::string text, what, hint;    // text: contents of each file
};

const std::vector<Foreign> kKinds = {
    {{".metadata", "__0_0.distcp"},
     "",
     "foreign: is a checkpoint of PyTorch's distributed checkpoint (.metadata, *.distcp): its index is a "
     "Python pickle, which only Python can read",
     "python -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR model.pt"},
    {{"model/.metadata", "model/__3_0.distcp"},
     "",
     "foreign/model: is a checkpoint of PyTorch's distributed",
     ""},
    {{"metadata.json", "common.pt", ".metadata", "__0_0.distcp"},
     "{\"sharded_backend\": \"torch_dist\"}",
     "foreign: is a checkpoint of Megatron-Core's dist_checkpointing (metadata.json with sharded_backend)",
     "convert it to a Hugging Face directory with Megatron Bridge: AutoBridge.export_ckpt"},
    {{"latest_checkpointed_iteration.txt", "iter_0000100/metadata.json"},
     "{\"sharded_backend\": \"torch_dist\"}",
     "foreign: is a checkpoint of Megatron-Core's dist_checkpointing",
     ""},
    {{"latest_checkpointed_iteration.txt", "iter_0000100/mp_rank_00/model_optim_rng.pt"},
     "100",
     "foreign: is a checkpoint of Megatron-LM in its older format (mp_rank_*/model_optim_rng.pt)",
     "let Megatron-LM save it as torch_dist (--ckpt-convert-format torch_dist)"},
    {{"mp_rank_00/model_optim_rng.pt"},
     "",
     "foreign: is a checkpoint of Megatron-LM in its older format",
     ""},
    {{"zero_to_fp32.py", "latest", "global_step4/mp_rank_00_model_states.pt"},
     "",
     "foreign: is a checkpoint of DeepSpeed (mp_rank_*_model_states.pt, zero_to_fp32.py)",
     "python zero_to_fp32.py DIR OUT --safe_serialization writes safetensors"},
    {{"pytorch_model.bin", "config.json"},
     "",
     "foreign: is a model as PyTorch pickles it (pytorch_model.bin, *.pt, *.pth): only Python reads that",
     "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT) writes safetensors"},
    {{"consolidated.00.pth", "params.json"}, "", "foreign: is a model as PyTorch pickles it", ""},
    {{"adapter_config.json", "adapter_model.safetensors"},
     "{}",
     "foreign/adapter_config.json: has no number lora_alpha",
     "save it again with peft"},
    {{"model-q4.gguf"},
     "GGUF",
     "foreign: is a GGUF file: its blocks are quantized for inference",
     "gguf_file=FILE"},
    {{"model/shard-00001-model-00001-of-00001.safetensors"},
     "",
     "foreign/model: is a sharded model of PyTorch's Hugging Face storage, as NeMo AutoModel saves it",
     "run AutoModel's model/consolidate.sh"}};
TEST(ForeignCheckpoints, AreRefusedByFormat) {
  for (const Foreign& kind : kKinds) {
    const Folder folder;
    for (const std::string& name : kind.names) {
      fs::create_directories((folder / ("foreign/" + name)).parent_path());
      folder.write("foreign/" + name, kind.text);
    }
    const std::string error = error_of(folder, [&] { find_model(folder / "foreign"); });
    EXPECT_THAT(error, StartsWith("error[input] FOLDER/" + kind.what));
    EXPECT_THAT(error, HasSubstr("\n  hint: "));
    EXPECT_THAT(error, HasSubstr(kind.hint));
  }
}

TEST(ForeignCheckpoints, AreRecognizedAsSingleFiles) {
  const Folder folder;
  folder.write("model.gguf", "GGUF");
  folder.write("model.pt", "");
  folder.write("model.txt", "");
  EXPECT_THAT(error_of(folder, [&] { find_model(folder / "model.gguf"); }),
              StartsWith("error[input] FOLDER/model.gguf: is a GGUF file"));
  EXPECT_THAT(error_of(folder, [&] { find_model(folder / "model.pt"); }),
              StartsWith("error[input] FOLDER/model.pt: is a model as PyTorch pickles it"));
  folder.write("model.bin", "PK\3\4");
  EXPECT_THAT(error_of(folder, [&] { find_model(folder / "model.bin"); }),
              StartsWith("error[input] FOLDER/model.bin: is a model as PyTorch pickles it"));
  for (const int32_t magic : {kNanogptMagic, kAutomodelMagic}) {
    folder.write("train.bin", std::string(reinterpret_cast<const char*>(&magic), sizeof magic) + "rest");
    EXPECT_EQ(error_of(folder, [&] { find_model(folder / "train.bin"); }),
              "error[input] FOLDER/train.bin: is a token file of heddle data, not a model\n"
              "  hint: give a Hugging Face directory, the checkpoint_dir of a run, or a checkpoint in it");
  }
  folder.write("bare.bin", "\1\2\3\4");
  EXPECT_THAT(error_of(folder, [&] { find_model(folder / "bare.bin"); }),
              StartsWith("error[input] FOLDER/bare.bin: is not a directory\n"));
  folder.write("adapter_config.json", "{}");
  EXPECT_THAT(foreign_checkpoint(folder / ".")->message(), StartsWith("is a PEFT adapter"));
  EXPECT_FALSE(foreign_checkpoint(folder / "model.txt"));
  EXPECT_FALSE(foreign_checkpoint(folder / "nothing"));
}

TEST(FindModel, NamesTheDirectoriesThatItSearched) {
  const Folder folder;
  EXPECT_EQ(
      error_of(folder, [&] { find_model(folder / ""); }),
      "error[input] FOLDER: contains no model: it has neither a config.json nor a manifest.json with its "
      ".hf_metadata in FOLDER, FOLDER/model, FOLDER/model/consolidated, and no checkpoint of a run\n"
      "  hint: give a Hugging Face directory, the checkpoint_dir of a run, or a checkpoint in it");
}

}  // namespace
}  // namespace heddle
