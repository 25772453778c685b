// The fields of the sections of a configuration, as their schemas know them: docs/reference/configuration.md
// holds them.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle {

struct SectionFields {
  std::string name;  // "step_scheduler"
  std::vector<FieldInfo> fields;
};

// Those that the trainer reads, in the order in which a person writes them.
std::vector<SectionFields> section_fields();

namespace recipe {

// Each beside its reader.
std::vector<FieldInfo> step_fields();
std::vector<FieldInfo> model_fields();
std::vector<FieldInfo> dataset_fields();
std::vector<FieldInfo> packed_fields();
std::vector<FieldInfo> dataloader_fields();
std::vector<FieldInfo> optimizer_fields();
std::vector<FieldInfo> group_fields();  // of an entry of optimizer.param_group_overrides
std::vector<FieldInfo> lr_fields();
std::vector<FieldInfo> clipping_fields();
std::vector<FieldInfo> loss_fields();
std::vector<FieldInfo> checkpoint_fields();
std::vector<FieldInfo> samples_fields();

}  // namespace recipe
}  // namespace heddle
