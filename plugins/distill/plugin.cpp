// distill: the sections of a recipe that trains a student on a teacher's logits.
#include "config.h"
#include "distill.h"
#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"

HEDDLE_PLUGIN("distill", "0.1.0", "transform teacher_model") {
  using namespace heddle::distill;
  auto& offered = plugin.transform<Distill>("teacher_model", schema());
  offered.order = 1000;  // after all others: adapters, noise and fp8 are the student's
  offered.keys = {"kd_ratio", "kd_loss_fn", "offload_teacher_model", "separate_meshes",
                  "teacher_distributed"};
  offered.model_field = "teacher_model";
  offered.recipe = "KnowledgeDistillationRecipeForNextTokenPrediction";
}
