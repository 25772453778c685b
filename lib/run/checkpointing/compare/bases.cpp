// Compares the identities of base models and teachers.
#include "lib/run/checkpointing/compare/bases.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
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

}  // namespace

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

}  // namespace heddle
