// Formats the header of a run.
#include "lib/report/header.h"

#include <ATen/Parallel.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "heddle/base/text.h"
#include "heddle/base/version.h"
#include "heddle/transport/rank_place.h"
#include "lib/cost/processor.h"

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

// Describes frozen parameters and the notes of transforms: frozen embeddings, for example, are easily
// overlooked.
std::string transforms_text(const RunHeader& header, const ModelSize& size) {
  std::string frozen, out;
  bool freezes = false;
  for (const RunHeader::Transform& one : header.transforms) {
    freezes = freezes || one.freezes;
    if (one.note.empty()) continue;
    if (one.freezes)
      frozen += "; " + one.note;
    else
      out +=
          "  " + one.name + std::string(one.name.size() < 6 ? 8 - one.name.size() : 2, ' ') + one.note + "\n";
  }
  return (freezes ? "  frozen  " + count_text(size.frozen) + " parameters" + frozen + "\n" : "") + out;
}

std::string batch_text(const RunHeader& header) {
  const auto& [global, local, row_length, is_ragged] = header.batch;
  const int64_t ranks = header.setup.sizes.dp, rounds = global / (local * ranks);
  return std::to_string(global) + " samples per step = " + std::to_string(ranks) + " data-parallel x " +
         std::to_string(rounds) +
         (header.pipeline ? (rounds == 1 ? " pass x " : " passes x ")
                          : (rounds == 1 ? " microbatch x " : " microbatches x ")) +
         std::to_string(local) + (local == 1 ? " sample; " : " samples; ") + (is_ragged ? "at most " : "") +
         std::to_string(global * row_length) + " tokens";
}

std::string pipeline_text(const RunHeader& header) {
  if (!header.pipeline) return "";
  const RunPipeline& pipeline = *header.pipeline;
  return "  stages  " + std::to_string(pipeline.stages) + " on " + std::to_string(header.setup.sizes.pp) +
         " ranks, schedule " + pipeline.schedule + "; a pass is " + std::to_string(pipeline.microbatches) +
         (pipeline.microbatches == 1 ? " microbatch of " : " microbatches of ") +
         std::to_string(pipeline.microbatch_size) +
         (pipeline.microbatch_size == 1 ? " sample\n" : " samples\n");
}

std::string steps_text(const RunHeader::Steps& steps) {
  std::string out = std::to_string(steps.total) + " steps, " + std::to_string(steps.per_epoch) + " per epoch";
  if (steps.max_steps && *steps.max_steps > steps.total)
    out += "; fewer than max_steps " + std::to_string(*steps.max_steps) + ", because num_epochs is " +
           std::to_string(*steps.num_epochs);
  return out;
}

// Describes when and where checkpoints and models are saved.
std::string saves_text(const RunHeader& header) {
  if (header.saves == RunHeader::Saves::benchmark) return "nothing, because this run is a benchmark";
  if (header.saves == RunHeader::Saves::nothing) return "nothing, because checkpoint.enabled is false";
  return std::string(header.saves == RunHeader::Saves::on_the_way
                         ? "checkpoints during and at the end of the run, the last in "
                         : "a checkpoint at the end, in ") +
         header.last_checkpoint.string() + " (its name counts steps from 0)" +
         (header.exports == RunHeader::Exports::every   ? "; each with an exported model"
          : header.exports == RunHeader::Exports::final ? "; the last with an exported model"
                                                        : "");
}

std::string resume_text(const RunHeader& header) {
  if (header.resumes.empty()) return "";
  const int64_t done = header.done_steps, all = header.steps.total;
  return "  resumes " + header.resumes.string() +
         (done < all ? ": continues with step " + std::to_string(done + 1) + " of " + std::to_string(all)
                     : ": all " + std::to_string(all) + " steps are done") +
         "\n";
}

// Describes the overrides of a pretrained model's config.json.
std::string overrides_text(const RunHeader::Overrides& overrides) {
  std::string keys;
  for (const auto& [key, value] : overrides.keys)
    keys += (keys.empty() ? "" : ", ") + key + " " + text::excerpt(value, 80);
  if (keys.empty()) return "";
  return "  config  " + keys + " for this run" +
         (overrides.are_exported ? ", also in exports" : "; exports have the model's own config.json") + "\n";
}

// Describes the origin of the weights. A quantized base is trained in another dtype than that of its files.
std::string origin_text(const RunHeader& header) {
  if (header.directory.empty()) return ", random weights";
  return ", from " + header.directory.string() +
         (header.dequantized.empty() ? "" : ", dequantized from " + header.dequantized);
}

// Describes the storage dtype, and the dtype of products if it differs.
std::string dtypes_text(const RunHeader& header) {
  const auto word = [](at::ScalarType dtype) {
    return dtype == at::kFloat ? "float32" : dtype == at::kHalf ? "float16" : "bfloat16";
  };
  return std::string(word(header.stored)) +
         (header.products == header.stored ? "" : std::string(" with products in ") + word(header.products));
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

std::vector<std::string> header_warnings(const RunHeader& header, std::vector<std::string> known,
                                         const ModelSize& size, const engine::Model& model) {
  if (model.mesh.device().is_cpu())
    if (std::string slow =
            slow_products(header.setup.strategy, header.products, header.stored, has_bfloat16_products());
        !slow.empty())
      known.push_back(std::move(slow));
  if (size.rounded)
    known.push_back(
        "parameters are stored in bfloat16 without master weights, so small updates are rounded away; set "
        "optimizer.master_weights, or model.dtype float32");
  return known;
}

std::string RunHeader::text(const ModelSize& size) const {
  std::string out = "heddle " HEDDLE_VERSION ": " + strategy_text(setup) + "\n";
  out += "  model   " + model_type + ", " + count_text(size.parameters) + " parameters, " +
         dtypes_text(*this) + origin_text(*this) + "\n";
  out += overrides_text(overrides);
  if (!routers.empty())
    out += "  routers " + routers + ", as in AutoModel's own modules; model.config overrides it\n";
  if (size.experts.layers > 0) out += "  experts " + experts_text(size) + "\n";
  out += transforms_text(*this, size);
  out += "  data    " + data + "\n";
  out += "  batch   " + batch_text(*this) + "\n";
  out += pipeline_text(*this);
  out += "  run     " + steps_text(steps) + "\n";
  out += "  memory  per rank: parameters " + bytes_text(size.held) + ", gradients " +
         bytes_text(size.gradients) + ", optimizer " + bytes_text(size.optimizer) +
         (size.largest_unit > 0 ? ", largest unit " + bytes_text(size.largest_unit) : "") +
         ", plus activations\n";
  if (!skipped.empty()) out += "  " + skipped;
  return out + "  saves   " + saves_text(*this) + "\n" + resume_text(*this);
}

}  // namespace heddle
