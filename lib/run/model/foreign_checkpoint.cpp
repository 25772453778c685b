// Recognizes checkpoints of other programs.
#include "lib/run/model/foreign_checkpoint.h"

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

#include "core/base/regular_file.h"
#include "lib/checkpoint/huggingface/hf_json.h"
#include "lib/data/tokens/token_header.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char* what;  // text after the path: "is ..."
  const char* hint;
};

constexpr Kind kDcp{
    "a checkpoint of PyTorch's distributed checkpoint (.metadata, *.distcp): its index is a Python pickle, "
    "which only Python can read",
    "python -m torch.distributed.checkpoint.format_utils dcp_to_torch DIR model.pt; then load model.pt into "
    "the "
    "transformers model and save_pretrained() a Hugging Face directory"};
constexpr Kind kMegatronDist{
    "a checkpoint of Megatron-Core's dist_checkpointing (metadata.json with sharded_backend): its tensors "
    "have "
    "Megatron's names and fused layouts, and its state is pickled",
    "convert it to a Hugging Face directory with Megatron Bridge: AutoBridge.export_ckpt"};
constexpr Kind kMegatronLegacy{
    "a checkpoint of Megatron-LM in its older format (mp_rank_*/model_optim_rng.pt): pickles for one split "
    "of "
    "tensors and stages, which only Python can read",
    "let Megatron-LM save it as torch_dist (--ckpt-convert-format torch_dist), then convert it to a "
    "Hugging Face directory with Megatron Bridge: AutoBridge.export_ckpt"};
constexpr Kind kDeepSpeed{
    "a checkpoint of DeepSpeed (mp_rank_*_model_states.pt, zero_to_fp32.py): pickles, which only Python "
    "reads",
    "python zero_to_fp32.py DIR OUT --safe_serialization writes safetensors; put the model's config.json "
    "beside "
    "them"};
constexpr Kind kPickle{
    "a model as PyTorch pickles it (pytorch_model.bin, *.pt, *.pth): only Python reads that, and reading it "
    "can "
    "run code",
    "with transformers: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(OUT) writes safetensors"};
constexpr Kind kGguf{"a GGUF file: its blocks are quantized for inference and cannot be trained",
                     "use the Hugging Face directory that it was made from, or convert it with transformers: "
                     "AutoModelForCausalLM.from_pretrained(DIR, gguf_file=FILE).save_pretrained(OUT)"};
constexpr Kind kAdapter{
    "a PEFT adapter (adapter_config.json): differences to a base model, not a checkpoint of a run",
    "use it as a model: heddle generate and model.pretrained_model_name_or_path add it to its base, and "
    "heddle convert writes the merged model"};
constexpr Kind kAutoModel{
    "a sharded model of PyTorch's Hugging Face storage, as NeMo AutoModel saves it: safetensors without a "
    "manifest.json, so their completeness cannot be checked",
    "run AutoModel's model/consolidate.sh, which writes the Hugging Face directory model/consolidated"};

constexpr Kind kTokens{"a token file of heddle data, not a model",
                       "give a Hugging Face directory, the checkpoint_dir of a run, or a checkpoint in it"};

bool ends(const std::string& name, std::initializer_list<const char*> endings) {
  for (const char* ending : endings)
    if (name.ends_with(ending)) return true;
  return false;
}

// The entries of a directory.
class Listing {
 public:
  explicit Listing(const fs::path& directory) : directory_(directory) {
    std::error_code failed;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory, failed))
      names_.insert(entry.path().filename().string());
  }
  bool has(const std::string& name) const { return names_.count(name) != 0; }
  bool has(const std::string& begin, std::initializer_list<const char*> endings) const {
    return !first(begin, endings).empty();
  }
  std::string first(const std::string& begin, std::initializer_list<const char*> endings) const {
    for (const std::string& name : names_)
      if (name.starts_with(begin) && ends(name, endings)) return name;
    return "";
  }
  // Whether a subdirectory whose name begins like this contains such a file.
  bool below(const std::string& begin, const char* file) const {
    std::error_code ignored;
    for (const std::string& name : names_)
      if (name.starts_with(begin) && fs::exists(directory_ / name / file, ignored)) return true;
    return false;
  }

 private:
  fs::path directory_;
  std::set<std::string> names_;
};

bool says_sharded_backend(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return false;
  std::ifstream stream(file, std::ios::binary);
  const auto said = checkpoint::hf_json_if_valid(std::string{std::istreambuf_iterator<char>(stream), {}});
  return said && said->is_object() && said->contains("sharded_backend");
}

// Whether the file may be from torch.save(): a ZIP archive, or a bare pickle in older versions.
bool may_be_pickle(const fs::path& file) {
  const std::string begin = read_beginning(file, 2);
  return begin.empty() || begin == "PK" || begin.front() == '\x80';
}

const Kind* kind_of_file(const fs::path& file) {
  const std::string name = file.filename().string();
  if (is_token_file(file)) return &kTokens;
  if (name.ends_with(".gguf")) return &kGguf;
  if (name.ends_with(".distcp")) return &kDcp;
  return ends(name, {".pt", ".pth", ".bin", ".ckpt"}) && may_be_pickle(file) ? &kPickle : nullptr;
}

const Kind* kind_of(const fs::path& directory) {
  const Listing in(directory);
  if (in.has("metadata.json") && says_sharded_backend(directory / "metadata.json")) return &kMegatronDist;
  if (in.has("latest_checkpointed_iteration.txt")) {
    return in.below("iter_", "metadata.json") ? &kMegatronDist : &kMegatronLegacy;
  }
  if (in.below("mp_rank_", "model_optim_rng.pt")) return &kMegatronLegacy;
  if (in.has("zero_to_fp32.py") || in.below("global_step", "mp_rank_00_model_states.pt") ||
      in.has("mp_rank_", {"_model_states.pt"}) || in.has("zero_pp_rank_", {"_states.pt"}))
    return &kDeepSpeed;
  if (in.has(".metadata") || in.has("__", {".distcp"})) return &kDcp;
  if (in.has("adapter_config.json")) return &kAdapter;
  if (in.has("", {".gguf"})) return &kGguf;
  if (in.has("shard-", {".safetensors"}) && !in.has("manifest.json")) return &kAutoModel;
  return in.has("pytorch_model", {".bin", ".bin.index.json"}) || in.has("", {".pt", ".pth"}) ? &kPickle
                                                                                             : nullptr;
}

Error refusal(const fs::path& path, const Kind& kind) {
  return Error(ErrorCode::input, path.string(), std::string("is ") + kind.what, kind.hint);
}

}  // namespace

std::optional<Error> foreign_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    const Kind* kind = kind_of_file(path);
    return kind == nullptr ? std::nullopt : std::optional(refusal(path, *kind));
  }
  // AutoModel and NeMo store the model in a subdirectory of the checkpoint.
  for (const fs::path& place : {path, path / "model", path / "weights"})
    if (const Kind* kind = kind_of(place)) return refusal(place, *kind);
  return std::nullopt;
}

}  // namespace heddle
