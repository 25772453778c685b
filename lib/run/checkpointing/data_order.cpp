// Compares the data of this run with the data of the saved run.
#include "lib/run/checkpointing/data_order.h"

#include "heddle/base/error.h"
#include "lib/data/samples/sample_set.h"
#include "lib/run/spec/settings.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAcceptData =
    ". --checkpoint.accept_other_data true resumes at the same step with the new data in its own order";

std::string instead(const std::string& same, const fs::path& directory, bool may_be_accepted) {
  return "resume with the same " + same +
         ", or set checkpoint.checkpoint_dir to a new directory and start from the saved model: "
         "model.pretrained_model_name_or_path: " +
         directory.string() + (may_be_accepted ? kAcceptData : "");
}

std::string text_at(const std::map<std::string, std::string>& map, const char* key) {
  const auto found = map.find(key);
  return found == map.end() ? "" : found->second;
}

bool differ(const std::string& saved, const std::string& now) {
  return !saved.empty() && !now.empty() && saved != now;
}

// Returns for example "was trained with another tokenizer"; "" if no difference of the texts is known.
std::string other_texts(const Position& there, const Position& here, const std::string& named) {
  if (differ(text_at(there.content, "tokenizer"), text_at(here.content, "tokenizer")))
    return "was trained with another tokenizer";
  if (differ(text_at(there.rows, kTextsSetting), text_at(here.rows, kTextsSetting)))
    return "was trained on texts that differ from those that " + named + " holds now";
  if (!differ(text_at(there.content, "data set"), text_at(here.content, "data set"))) return "";
  const bool known =
      !text_at(there.rows, kTextsSetting).empty() && !text_at(here.rows, kTextsSetting).empty();
  return known ? "was trained on different samples of the same texts (" + named +
                     "): a key of dataset, the chat template or the tokenizer's settings changed"
               : "was trained on texts or samples that differ from those of " + named + " now";
}

[[noreturn]] void refuse_texts(const fs::path& directory, const std::string& what) {
  throw Error(ErrorCode::config, "checkpoint.restore_from", directory.string() + " " + what,
              instead("texts and tokenizer", directory, true));
}

// Compares values of the two runs one by one.
class Comparison {
 public:
  Comparison(const fs::path& directory, const DataCheck& check, std::vector<std::string>& warnings)
      : directory_(directory), accepts_(check.accepts_data), warnings_(warnings) {}

  void refuse(const std::string& what, const std::string& saved, const std::string& wanted,
              bool is_data = true) const {
    if (is_data && accepts_) {
      warnings_.push_back(what + " was " + saved + " in the run that saved " +
                          directory_.filename().string() + ", and is " + wanted + " now");
      return;
    }
    throw Error(ErrorCode::config, "checkpoint.restore_from",
                directory_.string() + " was saved with a different data order: " + what + " was " + saved +
                    ", now " + wanted,
                instead("data", directory_, is_data));
  }

  void compare(const char* what, int64_t saved, int64_t wanted, bool is_data = false) const {
    if (saved != wanted) refuse(what, std::to_string(saved), std::to_string(wanted), is_data);
  }

 private:
  const fs::path& directory_;
  const bool accepts_;
  std::vector<std::string>& warnings_;
};

}  // namespace

std::string texts_named(const std::vector<DataInput>& inputs) {
  std::string first;
  int more = 0;
  for (const DataInput& one : inputs)
    if (one.description == kTextsInput) {
      if (first.empty())
        first = one.file.string();
      else
        ++more;
    }
  return first +
         (more == 0 ? "" : " and " + std::to_string(more) + (more == 1 ? " more file" : " more files"));
}

std::string texts_named(const RunSpec& run) {
  return texts_named(run.dataset.samples().inputs());
}

void check_data(const fs::path& directory, const Position& there, const Position& here,
                const DataCheck& check, std::vector<std::string>& warnings) {
  const Comparison of(directory, check, warnings);
  const bool has_texts = !check.texts.empty();
  const std::string other = has_texts ? other_texts(there, here, check.texts) : "";
  if (!other.empty() && !check.accepts_data) refuse_texts(directory, other);
  if (!other.empty()) warnings.push_back(directory.string() + " " + other);
  for (const auto& [key, saved] : there.rows)
    if (const auto found = here.rows.find(key);
        found != here.rows.end() && found->second != saved && key != kTextsSetting)
      of.refuse(key, saved, found->second);
  of.compare("step_scheduler.global_batch_size", there.global_batch_size, here.global_batch_size);
  if (other.empty()) of.compare("the number of samples", there.dataset_samples, here.dataset_samples, true);
  if (!has_texts) of.compare("dataset.seq_len", there.sequence_length, here.sequence_length, true);
  of.compare("dataloader.shuffle", there.shuffled, here.shuffled);
  if (check.seeded) of.compare("seed", there.seed, here.seed);
  if (has_texts) return;
  for (const auto& [what, saved] : there.content)
    if (const auto found = here.content.find(what); found != here.content.end() && found->second != saved)
      of.refuse("the " + what, saved, found->second);
}

void refuse_other_texts(const fs::path& directory, const Position& there, const TextsOfRun& texts) {
  Position here;
  if (!texts.tokenizer.empty()) here.content["tokenizer"] = kTokenizerFile + texts.tokenizer;
  if (!texts.texts.empty()) here.rows[kTextsSetting] = texts.texts;
  const std::string other = other_texts(there, here, texts.named);
  if (!other.empty()) refuse_texts(directory, other);
}

}  // namespace heddle
