// Finding the checkpoint that a run resumes from, and whether it fits.
#include "lib/run/checkpointing/resume.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/sharded.h"
#include "lib/run/checkpointing/data_order.h"
#include "lib/run/checkpointing/keep.h"
#include "lib/run/model/foreign_checkpoint.h"
#include "lib/run/spec/settings.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

// Whether the signatures differ: what is known of a model before the data of its run are.
bool is_other_model(const Position& there, const ModelSpec& model) {
  return there.model != model.signature();
}

bool is_complete(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / kPositionFile, ignored) &&
         fs::exists(directory / "model" / checkpoint::kManifest, ignored) &&
         fs::exists(directory / "optim" / checkpoint::kManifest, ignored);
}

// A user may expect to resume from a checkpoint of another program there.
void warn_of_foreign(const fs::path& root, std::vector<std::string>& warnings) {
  std::vector<fs::path> places = {root};
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, failed))
    if (entry.path().filename().string().starts_with("epoch_")) places.push_back(entry.path());
  for (const fs::path& place : places) {
    const auto foreign = foreign_checkpoint(place);
    if (!foreign) continue;
    warnings.push_back(foreign->where() + " " + foreign->message() + "; starting fresh");
    return;
  }
}

// What LATEST names is there, is not whole, and is all that there is: to begin anew would go over it.
void refuse_damaged(const fs::path& place) {
  std::error_code ignored;
  const bool is_there =
      place.has_filename() && fs::symlink_status(place, ignored).type() != fs::file_type::not_found;
  if (!is_there || foreign_checkpoint(place)) return;
  throw Error(ErrorCode::input, "checkpoint.restore_from",
              (place.parent_path() / "LATEST").string() + " names " + place.filename().string() +
                  ", which is not a complete checkpoint, or cannot be read, and there is no other",
              "bring its files back; or remove it and LATEST to begin with the first step; or point "
              "checkpoint.checkpoint_dir at a fresh directory");
}

// A copy that follows links makes a directory of a pointer, and no save could turn it.
void refuse_copied_pointers(const fs::path& root) {
  for (const char* name : {"LATEST", "LOWEST_VAL"}) {
    std::error_code ignored;
    if (!fs::is_directory(fs::symlink_status(root / name, ignored))) continue;
    throw Error(ErrorCode::config, "checkpoint.checkpoint_dir",
                (root / name).string() + " is a directory, where a link to a checkpoint belongs",
                "it is a copy of what the link named: remove it");
  }
}

// Where a run goes on by itself: what LATEST names, as checkpoints of more steps may be of a run that this
// one has branched off from. Only where that is not whole the one with the most steps; "" where there is
// none.
fs::path latest(const fs::path& root, std::vector<std::string>& warnings) {
  const std::vector<fs::path> all = checkpoints_in(root);
  const std::string target = checkpoint::pointed(root / "LATEST");
  const bool whole = !target.empty() && is_complete(root / target);
  if (all.empty() && !whole) refuse_damaged(root / target);
  if (all.empty()) return whole ? root / target : "";
  const std::string most = all.back().filename().string(), names = (root / "LATEST").string() + " names ";
  if (!whole) {
    warnings.push_back(names +
                       (target.empty() ? "nothing" : target + ", which is not a complete checkpoint") +
                       "; resuming from " + most + ", the complete checkpoint with the most steps there");
    return all.back();
  }
  if (const auto steps = steps_of(target); steps && *steps < *steps_of(most))
    warnings.push_back(names + target + "; " + most +
                       " beside it has more steps: --checkpoint.restore_from " + most +
                       " resumes from that one");
  return root / target;
}

// What to do with a place that is no checkpoint: a run's directory and a checkpoint's model are near to one.
std::string instead_of(const fs::path& place) {
  const fs::path normal = place.lexically_normal();
  const fs::path above = normal.has_filename() ? normal.parent_path() : normal.parent_path().parent_path();
  if (const auto all = checkpoints_in(place); !all.empty())
    return "it is a directory of checkpoints; the newest is " + all.back().string();
  if (!above.empty() && is_complete(above)) return "it is a part of the checkpoint " + above.string();
  return "a directory with a model alone is a model to start from: model.pretrained_model_name_or_path";
}

// What a link to a checkpoint names, and no "/" at its end: its last word is the checkpoint's name.
fs::path by_name(const fs::path& place) {
  const fs::path plain = place.has_filename() ? place : place.parent_path();
  std::error_code ignored;
  if (!fs::is_symlink(plain, ignored)) return plain;
  const fs::path target = fs::read_symlink(plain, ignored);
  return target.is_absolute() ? target : plain.parent_path() / target;
}

// The place that a word names, or "" and a warning where a pointer names nothing.
fs::path named(const std::string& word, const fs::path& root, std::vector<std::string>& warnings) {
  std::error_code ignored;
  if (word == "LATEST" || word == "LOWEST_VAL") {
    const std::string target = checkpoint::pointed(root / word);
    if (word == "LATEST") {
      if (const fs::path place = latest(root, warnings); !place.empty()) return place;
    } else if (!target.empty() && is_complete(root / target)) {
      return root / target;
    }
    if (const auto foreign = foreign_checkpoint(target.empty() ? root : root / target)) throw *foreign;
    if (const auto all = checkpoints_in(root); !all.empty())
      throw Error(ErrorCode::input, "checkpoint.restore_from",
                  "is " + word + ", but " + (root / word).string() + " names no complete checkpoint",
                  "name a checkpoint of " + root.string() +
                      ", such as the newest: " + all.back().filename().string());
    warnings.push_back("restore_from is " + word + ", and " + (root / word).string() +
                       " names no complete checkpoint; starting fresh");
    return "";
  }
  const fs::path inside = root / word, alone = word;  // of a path from "/" both are the same
  for (const fs::path& place : {inside, alone}) {
    if (!fs::exists(place, ignored)) continue;
    if (is_complete(place)) return by_name(place);
    const bool ours = fs::exists(place / kPositionFile, ignored);
    if (const auto foreign = ours ? std::nullopt : foreign_checkpoint(place)) throw *foreign;
    throw Error(ErrorCode::input, "checkpoint.restore_from",
                place.string() + " is not a complete checkpoint: it needs " + kPositionFile + ", model/" +
                    checkpoint::kManifest + " and optim/" + checkpoint::kManifest,
                instead_of(place));
  }
  throw Error(ErrorCode::input, "checkpoint.restore_from",
              inside == alone
                  ? text::excerpt(word) + " is not there"
                  : "neither " + text::excerpt(inside.string()) + " nor " + text::excerpt(word) + " is there",
              "give the name of a directory in " + root.string() + ", a path, LATEST or LOWEST_VAL");
}

}  // namespace

std::string other_model(const fs::path& checkpoint, const RunSpec& run) {
  return is_complete(checkpoint) ? changed_model(read_position(checkpoint / kPositionFile), run) : "";
}

std::string newest_of_this_model(const RunSpec& run) {
  const std::vector<fs::path> all = checkpoints_in(run.recipe.checkpoint.directory);
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [&](const fs::path& one) { return other_model(one, run).empty(); });
  return found == all.rend() ? "" : found->filename().string();
}

std::vector<fs::path> checkpoints_in(const fs::path& root) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, failed))
    if (const auto steps = steps_of(entry.path()); steps && is_complete(entry.path()))
      found.emplace_back(*steps, entry.path());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> out;
  for (auto& [step, path] : found) out.push_back(std::move(path));
  return out;
}

bool owes_validation(const RunSpec& run, const std::string& set) {
  if (!run.resume || run.resume->position.step == 0) return false;
  return run.scheduler.at(run.resume->position.step - 1).validate &&
         run.resume->losses.validation.count(set) == 0;
}

Position position_after(const RunSpec& run, const StepInfo& info) {
  const int64_t an_epoch = run.scheduler.steps_per_epoch();
  Position position;
  position.step = info.step + 1;
  position.epoch = position.step / an_epoch;
  position.sample = info.step / an_epoch * run.dataset.size() + info.end;
  position.seed = run.recipe.seed;
  position.global_batch_size = run.recipe.steps.global_batch_size;
  position.dataset_samples = run.dataset.size();
  position.sequence_length = run.dataset.length();
  position.rows = run.dataset.samples().settings();
  position.rows["packed_sequence"] = run.dataset.packing() ? run.dataset.packing()->text : "off";
  if (run.shuffle == Shuffle::torch) position.rows["order"] = "torch";
  position.shuffled = run.shuffle != Shuffle::off;
  position.content = run.content;
  position.settings = run.settings;
  position.bases = run.bases;
  position.model = run.model.spec->signature();
  position.next_lr = run.rates.lr(position.step);
  position.total_steps = run.scheduler.total_steps();
  return position;
}

namespace {

// A base model or a teacher of this run, in words.
struct BaseWords {
  std::string kind, key, where;
};

BaseWords words_of_base(const RunSpec& run, const std::string& name) {
  if (name == "model") return {"base model", "model.pretrained_model_name_or_path", run.recipe.model.where};
  const auto found = std::find_if(run.model.transforms.begin(), run.model.transforms.end(),
                                  [&name](const ActiveTransform& one) { return one.name == name; });
  return {"model of the section " + name, name + ".pretrained_model_name_or_path",
          found == run.model.transforms.end() ? name : found->run.where};
}

std::string weights_text(const ModelIdentity& one) {
  return bytes_text(one.bytes) + " of digest " + one.digest;
}

std::string form_text(const std::string& form) {
  return form.empty() ? "the form of its files" : "the form '" + form + "'";
}

// "was trained with the base model in A (...), and B has other weights (...)".
std::string difference(const ModelIdentity& was, const ModelIdentity& now, const std::string& kind) {
  const bool is_same = was.bytes == now.bytes && was.digest == now.digest;
  if (is_same)
    return "was trained with its " + kind + " in " + form_text(was.form) + ", and the run has it in " +
           form_text(now.form) + " now";
  if (was.place == now.place)
    return "was trained with other weights of the " + kind + " in " + was.place + " (" + weights_text(was) +
           ") than the directory holds now (" + weights_text(now) + ")";
  return "was trained with the " + kind + " in " + was.place + " (" + weights_text(was) + "), and " +
         now.place + " has other weights (" + weights_text(now) + ")";
}

std::string remedy(const ModelIdentity& was, const ModelIdentity& now, const BaseWords& named) {
  const bool is_same = was.bytes == now.bytes && was.digest == now.digest;
  const std::string back = is_same                  ? "set the section as it was"
                           : was.place == now.place ? "bring the former files back"
                                                    : "set " + named.key + " to " + was.place;
  return back +
         ", or begin anew in another checkpoint.checkpoint_dir; --checkpoint.accept_other_base true resumes "
         "with the new weights";
}

// Throws Error{config} where the base model or a teacher has other weights than in the run that saved the
// checkpoint, unless checkpoint.accept_other_base is set; then, and where the checkpoint does not say which
// weights these were, it adds a warning.
void check_bases(const RunSpec& run, const Resume& resume, std::vector<std::string>& warnings) {
  const std::string checkpoint = resume.directory.filename().string();
  for (const auto& [name, now] : run.bases) {
    const BaseWords named = words_of_base(run, name);
    const auto was = resume.position.bases.find(name);
    if (was == resume.position.bases.end()) {
      warnings.push_back(checkpoint + " does not say which weights the " + named.kind +
                         " had: whether they are those of " + now.place + " is not known");
      continue;
    }
    if (are_alike(was->second, now)) continue;
    const std::string text = checkpoint + " " + difference(was->second, now, named.kind);
    if (!run.recipe.checkpoint.accept_other_base)
      throw Error(ErrorCode::config, named.where, text, remedy(was->second, now, named));
    warnings.push_back(text);
  }
}

std::string instead_of_latest(const RunSpec& run) {
  const std::string own = newest_of_this_model(run);
  return own.empty() ? "" : " --checkpoint.restore_from " + own + " resumes from the newest of this model.";
}

// Where checkpoints hold what a transform adds alone, another setting drops it or gives it another meaning.
void refuse_other_adapters(const RunSpec& run, const Resume& resume) {
  for (size_t i = 0; i < run.model.changes.size(); ++i) {
    const ActiveTransform& one = run.model.transforms[i];
    const auto was = resume.position.settings.find(one.name);
    if (!run.model.changes[i].base_elsewhere || was == resume.position.settings.end()) continue;
    if (meaning_of(was->second) == meaning_of(one.setting)) continue;
    throw Error(ErrorCode::config, one.run.where,
                one.name + " was " + was->second + " in the run that saved " +
                    resume.directory.filename().string() + ", and is " + one.setting +
                    " now: what was trained would be lost",
                "set " + one.name + " as it was, or begin anew in another checkpoint.checkpoint_dir");
  }
}

// Parameters of the checkpoint that this run lacks would be dropped without a word: adapters whose
// section is gone, or those that an older heddle gave each part of a joined layer.
void refuse_lost_parameters(const RunSpec& run, const Resume& resume) {
  std::set<std::string> lost;
  for (const auto& [name, tensor] :
       checkpoint::read_manifest(resume.directory / "model" / checkpoint::kManifest).tensors)
    lost.insert(name);
  for (const auto& unit : run.model.make())
    for (const ParameterSlot& slot : unit->parameters()) lost.erase(slot.name);
  if (lost.empty()) return;
  throw Error(
      ErrorCode::config, "checkpoint.restore_from",
      (resume.directory / "model").string() + " holds '" + *lost.begin() + "'" +
          (lost.size() == 1 ? "" : " and " + std::to_string(lost.size() - 1) + " more parameters") +
          ", which the model of this run does not have: what was trained would be lost",
      "set the sections that add parameters, such as peft, as they were, or resume with the version of "
      "heddle that saved the checkpoint, or begin anew in another checkpoint.checkpoint_dir");
}

}  // namespace

fs::path place_to_resume(const CheckpointSection& section, std::vector<std::string>& warnings) {
  if (!section.enabled) return "";
  refuse_copied_pointers(section.directory);
  if (section.restore_from) return named(*section.restore_from, section.directory, warnings);
  fs::path directory = latest(section.directory, warnings);
  if (directory.empty()) warn_of_foreign(section.directory, warnings);
  return directory;
}

void check_texts(const CheckpointSection& section, const ModelSpec& model,
                 const std::function<TextsOfRun()>& texts) {
  if (section.accept_other_data) return;
  std::vector<std::string> said_later;
  const fs::path directory = place_to_resume(section, said_later);
  if (directory.empty()) return;
  const Position there = read_position(directory / kPositionFile);
  if (section.restore_from || !is_other_model(there, model)) refuse_other_texts(directory, there, texts());
}

std::optional<Resume> find_checkpoint(const RunSpec& run, std::vector<std::string>& warnings) {
  const CheckpointSection& section = run.recipe.checkpoint;
  const fs::path directory = place_to_resume(section, warnings);
  if (directory.empty()) return std::nullopt;
  Resume resume{directory, read_position(directory / kPositionFile), read_losses(directory / "losses.json")};
  const std::string reason = changed_model(resume.position, run);
  if (!reason.empty()) {
    if (!section.restore_from) {
      warnings.push_back("Auto-detected checkpoint at " + directory.string() +
                         " is incompatible with current model configuration: " + reason +
                         ". Skipping restore." + instead_of_latest(run));
      return std::nullopt;
    }
    warnings.push_back("the checkpoint at " + directory.string() +
                       " was saved with another model configuration: " + reason);
  }
  refuse_other_adapters(run, resume);
  if (reason.empty()) refuse_lost_parameters(run, resume);
  check_bases(run, resume, warnings);
  const bool seeded = run.shuffle != Shuffle::off || run.dataset.samples().uses_seed();
  const Position here = position_after(run, StepInfo{});
  check_data(directory, resume.position, here, {seeded, section.accept_other_data, texts_named(run)},
             warnings);
  std::map<std::string, std::string> there = resume.position.settings, now = here.settings;
  if (!run.model.has_experts && run.recipe.whole_samples == 1)  // microbatches change no number
    for (auto* settings : {&there, &now}) settings->erase("step_scheduler.local_batch_size");
  for (std::string& line : changed_settings(directory.filename().string(), there, now))
    warnings.push_back(std::move(line));
  return resume;
}

}  // namespace heddle
