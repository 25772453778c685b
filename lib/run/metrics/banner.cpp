// The words for the terminal.
#include "lib/run/metrics/banner.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <utility>

#include "heddle/base/text.h"
#include "heddle/base/version.h"
#include "heddle/transport/rank_place.h"
#include "lib/checkpoint/quantized/quantization.h"
#include "lib/cost/model_size.h"
#include "lib/cost/processor.h"
#include "lib/run/checkpointing/save.h"
#include "lib/run/metrics/mfu.h"
#include "lib/run/recipe/signals.h"
#include "lib/run/recipe/skipped_keys.h"

namespace heddle {
namespace {

std::string strategy_text(const Setup& setup) {
  std::string out = setup.strategy + " on " + std::to_string(setup.sizes.world) +
                    (setup.sizes.world == 1 ? " rank" : " ranks");
  std::string axes;
  for (const Axis& axis : setup.axes)
    if (axis.size > 1) axes += (axes.empty() ? "" : ", ") + axis.name + " " + std::to_string(axis.size);
  return axes.empty() ? out : out + " (" + axes + ")";
}

// What transforms take out of training, and what they say of themselves: an embedding that is frozen unasked
// is easily forgotten.
std::string transforms_text(const RunSpec& run, const ModelSize& size) {
  std::string frozen, out;
  bool freezes = false;
  for (size_t i = 0; i < run.model.changes.size(); ++i) {
    const Transformed& changes = run.model.changes[i];
    freezes = freezes || !changes.frozen.empty();
    if (changes.note.empty()) continue;
    if (!changes.frozen.empty())
      frozen += "; " + changes.note;
    else
      out += "  " + run.model.transforms[i].name + "  " + changes.note + "\n";
  }
  return (freezes ? "  frozen  " + count_text(size.frozen) + " parameters" + frozen + "\n" : "") + out;
}

std::string batch_text(const RunSpec& run) {
  const StepSection& steps = run.recipe.steps;
  const int64_t ranks = run.setup.sizes.dp;
  const int64_t rounds = steps.global_batch_size / (steps.local_batch_size * ranks);
  return std::to_string(steps.global_batch_size) + " samples a step = " + std::to_string(ranks) +
         " data-parallel x " + std::to_string(rounds) +
         (run.pipeline ? (rounds == 1 ? " pass x " : " passes x ")
                       : (rounds == 1 ? " microbatch x " : " microbatches x ")) +
         std::to_string(steps.local_batch_size) + (steps.local_batch_size == 1 ? " sample; " : " samples; ") +
         (run.dataset.is_ragged() ? "at most " : "") +
         std::to_string(steps.global_batch_size * run.dataset.length()) + " tokens";
}

std::string pipeline_text(const RunSpec& run) {
  if (!run.pipeline) return "";
  const RunPipeline& pipeline = *run.pipeline;
  const int ranks = run.setup.sizes.pp;
  return "  stages  " + std::to_string(pipeline.stages) + " on " + std::to_string(ranks) +
         " ranks, schedule " + pipeline.schedule + "; a pass is " + std::to_string(pipeline.microbatches) +
         (pipeline.microbatches == 1 ? " microbatch of " : " microbatches of ") +
         std::to_string(pipeline.microbatch_size) +
         (pipeline.microbatch_size == 1 ? " sample\n" : " samples\n");
}

std::string run_text(const RunSpec& run) {
  std::string out = std::to_string(run.scheduler.total_steps()) + " steps, " +
                    std::to_string(run.scheduler.steps_per_epoch()) + " an epoch";
  if (run.scheduler.short_of_max_steps())
    out += "; fewer than max_steps " + std::to_string(*run.recipe.steps.max_steps) + ", as num_epochs is " +
           std::to_string(*run.recipe.steps.num_epochs);
  return out;
}

// Where checkpoints and models go.
std::string saves_text(const RunSpec& run) {
  if (run.recipe.benchmark) return "nothing, as it is a benchmark";
  if (!run.recipe.checkpoint.enabled) return "nothing, as checkpoint.enabled is false";
  const StepInfo last = run.scheduler.last();
  const bool every = run.recipe.checkpoint.save_consolidated == CheckpointSection::Export::every;
  return std::string(run.scheduler.saves_before_the_end() ? "checkpoints on the way and at the end, in "
                                                          : "a checkpoint at the end, in ") +
         directory_of(run, last).string() + " (its name counts steps from 0)" +
         (every                                      ? "; each with the model for transformers"
          : saves_model(run.recipe.checkpoint, last) ? "; the last with the model for transformers"
                                                     : "");
}

std::string resume_text(const RunSpec& run) {
  if (!run.resume) return "";
  const int64_t done = run.resume->position.step, all = run.scheduler.total_steps();
  return "  resumes " + run.resume->directory.string() +
         (done < all ? ": goes on with step " + std::to_string(done + 1) + " of " + std::to_string(all)
                     : ": all " + std::to_string(all) + " steps are done") +
         "\n";
}

std::string data_text(const Rows& dataset) {
  const std::string size = std::to_string(dataset.size()), tokens = std::to_string(dataset.length());
  if (const Packing* packing = dataset.packing())
    return size + " packs of " + tokens + " tokens, of " +
           std::to_string(dataset.used_samples() - packing->left_out) + " samples";
  if (!dataset.is_uneven()) return size + " samples of " + tokens + " tokens";
  return size + " samples of at most " + std::to_string(dataset.longest()) + " tokens in rows " +
         (dataset.is_ragged() ? "as long as the longest of their microbatch" : "of " + tokens);
}

// The keys of a pretrained model that this run sets otherwise.
std::string overrides_text(const ConfigOverrides& overrides, const std::set<std::string>& idle) {
  if (overrides.empty()) return "";
  std::string keys;
  for (const auto& [key, value] : overrides.keys.entries())
    if (!idle.contains(key))
      keys += (keys.empty() ? "" : ", ") + key + " " + text::excerpt(config::to_json(value), 80);
  if (keys.empty()) return "";
  return "  config  " + keys + " for this run" +
         (overrides.exported ? ", and in what it exports"
                             : "; what it exports has the model's own config.json") +
         "\n";
}

// A quantized base is trained in another form than that of its files.
std::string origin_text(const PreparedModel& model) {
  if (model.directory.empty()) return ", random weights";
  std::string out = ", from " + model.directory.string();
  if (model.place.kind != ModelPlace::Kind::hugging_face) return out;
  if (const auto form = checkpoint::quantization_in(model.place.weights))
    out += std::string(", dequantized from ") + form->name();
  return out;
}

// The dtype in which the model is stored, and that of its products where that is another.
std::string dtypes_text(const RunSpec& run) {
  const auto word = [](at::ScalarType dtype) {
    return dtype == at::kFloat ? "float32" : dtype == at::kHalf ? "float16" : "bfloat16";
  };
  const at::ScalarType products = product_dtype(run.setup, run.model);
  return std::string(word(run.model.dtype)) +
         (products == run.model.dtype ? "" : std::string(" with products in ") + word(products));
}

}  // namespace

std::string device_text(const engine::Model& model, int local_ranks) {
  std::ostringstream out;
  if (model.device)
    out << "  device  " << model.mesh.device() << "\n";
  else
    out << threads_text(at::get_num_threads(), local_ranks, threads_per_rank(1), std::getenv(kWaitPolicy));
  return out.str();
}

std::vector<std::string> warnings(const RunSpec& run, const ModelSize& size, const engine::Model& model) {
  std::vector<std::string> out = run.setup.warnings;
  if (model.mesh.device().is_cpu())
    if (std::string slow = slow_products(run.setup.strategy, product_dtype(run.setup, run.model),
                                         run.model.dtype, has_bfloat16_products());
        !slow.empty())
      out.push_back(std::move(slow));
  if (size.rounded)
    out.push_back(
        "parameters are stored in bfloat16 without master weights: small updates round to nothing; set "
        "optimizer.master_weights, or model.dtype float32");
  return out;
}

std::string stopped_text(const RunSpec& run, int signal, const std::optional<StepInfo>& info) {
  const std::string by = "stopped by " + signal_name(signal);
  if (!info) return by + " before the first step: nothing new to save; the same command starts again";
  const std::string at = by + " after step " + std::to_string(info->step + 1) + " of " +
                         std::to_string(run.scheduler.total_steps());
  if (run.recipe.benchmark) return at + ": a benchmark saves nothing, and its figures are not written";
  if (!run.recipe.checkpoint.enabled) return at + ": nothing was saved, as checkpoint.enabled is false";
  const std::optional<std::string>& from = run.recipe.checkpoint.restore_from;
  const bool follows = !from || *from == "LATEST";
  return at + ": saved " + directory_of(run, *info).string() + "; the same command " +
         (follows ? "resumes from there" : "with --checkpoint.restore_from LATEST resumes from there");
}

std::string banner(const RunSpec& run, const ModelSize& size) {
  const bool mixed = run.recipe.shuffle != Shuffle::off;
  std::string out = "heddle " HEDDLE_VERSION ": " + strategy_text(run.setup) + "\n";
  out += "  model   " + run.model.spec->facts().model_type + ", " + count_text(size.parameters) +
         " parameters, " + dtypes_text(run) + origin_text(run.model) + "\n";
  out += overrides_text(run.recipe.model.overrides, run.model.idle_keys);
  if (!run.model.routing.empty())
    out += "  routers " + run.model.routing +
           ", as in AutoModel's own modules; model.config has the last word\n";
  if (size.experts.layers > 0) out += "  experts " + experts_text(size) + "\n";
  out += transforms_text(run, size);
  out += "  data    " + data_text(run.dataset) + ", " +
         (mixed                                ? "mixed by seed " + std::to_string(run.recipe.seed)
          : run.dataset.samples().sequential() ? std::string("in the data set's own order")
                                               : std::string("in the order of the files")) +
         "\n";
  out += "  batch   " + batch_text(run) + "\n";
  out += pipeline_text(run);
  out += "  run     " + run_text(run) + "\n";
  out += "  memory  a rank: parameters " + bytes_text(size.held) + ", gradients " +
         bytes_text(size.gradients) + ", optimizer " + bytes_text(size.optimizer) +
         (size.largest_unit > 0 ? ", largest unit " + bytes_text(size.largest_unit) : "") +
         "; activations come on top\n";
  if (const std::string skipped = text_of(run.recipe.skipped, false); !skipped.empty()) out += "  " + skipped;
  return out + "  saves   " + saves_text(run) + "\n" + resume_text(run);
}

}  // namespace heddle
