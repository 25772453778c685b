// distill: trains a student on the logits of a teacher.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "heddle/base/error.h"
#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"
#include "teacher.h"

namespace heddle::distill {
namespace {

class Distill : public ITransform {
 public:
  explicit Distill(Config config) : config_(std::move(config)) {}
  Transformed apply(Units& units, const TransformRun& run) const override;
  std::string setting() const override;

 private:
  Config config_;
};

std::string number(double value) {
  return config::to_json(Node::real(value));
}

[[noreturn]] void refuse(const TransformRun& run, const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::config, run.where, what, hint);
}

ModuleUnit& known(Unit& unit, const TransformRun& run, const std::string& whose) {
  auto* out = dynamic_cast<ModuleUnit*>(&unit);
  if (out == nullptr)
    refuse(run, "the " + whose + "'s unit '" + std::string(unit.name()) + "' is a foreign model",
           "use a model that is built from heddle's modules");
  return *out;
}

void check_models(const TransformRun& run, std::vector<std::string>& warnings) {
  if (run.spec == nullptr) return;  // units of an embedder have no spec
  const ModelFacts teacher = run.other_model->spec->facts(), student = run.spec->facts();
  if (teacher.vocabulary != student.vocabulary)
    refuse(run,
           "the teacher has a vocabulary of " + std::to_string(teacher.vocabulary) +
               ", but the student has " + std::to_string(student.vocabulary),
           "choose a teacher with the student's tokenizer");
  if (teacher.max_positions < student.max_positions)
    warnings.push_back(run.where + ": the teacher supports sequences of at most " +
                       std::to_string(teacher.max_positions) + " tokens, but the student supports " +
                       std::to_string(student.max_positions));
}

// Refuses a teacher with experts: its routers would add their counts and balance losses to the student's.
void check_dense(Units& units, const TransformRun& run) {
  for (const auto& unit : units)
    known(*unit, run, "teacher").visit([&](const std::string& path, Module& module) {
      const Role role = module.traits().role;
      if (role == Role::router || role == Role::experts)
        throw Error(ErrorCode::not_built, run.where, "a teacher with experts is not built ('" + path + "')",
                    "choose a teacher without experts");
    });
}

Units teacher_units(const Units& student, const TransformRun& run, std::vector<std::string>& warnings) {
  if (run.other_model == nullptr)
    refuse(run, "the teacher is missing", "set teacher_model: {pretrained_model_name_or_path: DIRECTORY}");
  check_models(run, warnings);
  const std::vector<ParameterSlot> slots = student.front()->parameters();
  Units teacher = run.other_model->spec->make_units(
      at::TensorOptions().device(slots.front().tensor->device()).dtype(run.other_model->dtype));
  check_dense(teacher, run);
  for (const auto& unit : teacher)
    for (ParameterSlot& slot : unit->parameters()) slot.tensor->set_requires_grad(false);
  return teacher;
}

// Makes the teacher's last unit a child of the student's last module, under its own names.
std::shared_ptr<TeacherHead> join_heads(ModuleUnit& student, std::unique_ptr<ModuleUnit> teacher,
                                        const Config& config, const TransformRun& run) {
  const model::LossHead own = model::loss_head_of(*student.module()),
                        other = model::loss_head_of(*teacher->module());
  if (own.module == nullptr || other.module != teacher->module() || own.module != student.module())
    refuse(run, "one of the models does not end in a linear layer beside a token loss",
           "use models whose last layer is a head from heddle's modules");
  const std::vector<ParameterSlot> plain = teacher->module()->parameters(kTeacher),
                                   named = teacher->parameters();
  for (size_t i = 0; i < plain.size(); ++i)
    if (const std::string name = std::string(kTeacher) + "." + named[i].name; name != plain[i].name)
      student.tie(plain[i].name, name);
  const auto head = std::make_shared<TeacherHead>(std::move(teacher), other, config);
  transform::add_child(*student.module(), kTeacher, *head);
  own.loss->instead.add(TokenLoss::Instead::around(
      "distill", 0,
      [head, loss = own.loss](const at::Tensor& x, Linear& by, const Batch& batch, const auto&) {
        return head->loss(x, by, batch, *loss);
      }));
  return head;
}

// Merges both plans, so that parallelizers split both models.
std::shared_ptr<const TensorPlan> joined_plan(const TensorPlan* student, const TensorPlan* teacher) {
  auto plan = std::make_shared<TensorPlan>();
  if (student != nullptr) *plan = *student;
  if (teacher != nullptr)
    for (const auto& [pattern, style] : *teacher)
      plan->emplace_back(std::string(kTeacher) + "." + pattern, style);
  return plan;
}

// Returns the teacher's units, then the student's.
Units joined(Units student, Units teacher, const Config& config, const TransformRun& run) {
  const auto plan = joined_plan(student.front()->tensor_plan(), teacher.front()->tensor_plan());
  auto last = std::make_unique<ModuleUnit>(std::move(known(*teacher.back(), run, "teacher")));
  teacher.pop_back();
  Units out;
  const auto add = [&](std::unique_ptr<ModuleUnit> unit) {
    if (!plan->empty()) unit->set_tensor_plan(plan);
    out.push_back(std::move(unit));
  };
  for (const auto& unit : teacher)
    add(std::make_unique<TeacherUnit>(std::move(known(*unit, run, "teacher"))));
  for (size_t i = 0; i + 1 < student.size(); ++i)
    add(std::make_unique<StudentUnit>(std::move(known(*student[i], run, "student"))));
  ModuleUnit& head = known(*student.back(), run, "student");
  const auto joint = join_heads(head, std::move(last), config, run);
  add(std::make_unique<LastUnit>(std::move(head), joint));
  return out;
}

// Reads the teacher's values from its own files, by its own names.
ParameterSource both(ParameterSource student, ParameterSource teacher) {
  return [student = std::move(student), teacher = std::move(teacher)](const Shard& shard) {
    const std::string prefix = std::string(kTeacher) + ".";
    if (!shard.name.starts_with(prefix)) return student && student(shard);
    if (!teacher) return false;
    Shard own = shard;
    own.name = shard.name.substr(prefix.size());
    return teacher(own);
  };
}

void note_names(const Units& units, Transformed& out, int64_t& parameters) {
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      if (!slot.name.starts_with(std::string(kTeacher) + ".")) continue;
      if (std::find(out.added.begin(), out.added.end(), slot.name) != out.added.end()) continue;
      out.added.push_back(slot.name);
      parameters += slot.tensor->numel();
    }
}

Transformed Distill::apply(Units& units, const TransformRun& run) const {
  Transformed out;
  Units teacher = teacher_units(units, run, out.warnings);
  units = joined(std::move(units), std::move(teacher), config_, run);
  int64_t parameters = 0;
  note_names(units, out, parameters);
  out.added_elsewhere = true;
  out.values = [source = run.other_model->source](ParameterSource student) {
    return both(std::move(student), source);
  };
  const std::string name = run.other_model->name.empty() ? "with random weights" : run.other_model->name;
  out.note = name + ", " + std::to_string(parameters) +
             " frozen parameters; loss = " + number(1 - config_.kd_ratio) + " ce_loss + " +
             number(config_.kd_ratio) + " kd_loss, temperature " + number(config_.kd_loss_fn.temperature);
  if (config_.separate_meshes)
    out.warnings.push_back(
        run.where +
        ": separate_meshes has no effect: the teacher runs on the student's ranks, and results are the same");
  if (!config_.kd_loss_fn.fp32_upcast)
    out.warnings.push_back(run.where + ": fp32_upcast: false has no effect: the loss is computed in float32");
  return out;
}

// The teacher's path is not part of the setting, because it does not affect results.
std::string Distill::setting() const {
  return "kd_ratio " + number(config_.kd_ratio) + ", temperature " + number(config_.kd_loss_fn.temperature) +
         ", teacher " + config::to_json(config_.teacher_model);
}

}  // namespace
}  // namespace heddle::distill

HEDDLE_PLUGIN("distill", "0.1.0", "transform teacher_model") {
  using namespace heddle::distill;
  auto& offered = plugin.transform<Distill>("teacher_model", schema());
  offered.order = 1000;  // after all others: adapters, noise and fp8 apply to the student
  offered.keys = {"kd_ratio", "kd_loss_fn", "offload_teacher_model", "separate_meshes",
                  "teacher_distributed"};
  offered.model_field = "teacher_model";
  offered.recipe = "KnowledgeDistillationRecipeForNextTokenPrediction";
}
