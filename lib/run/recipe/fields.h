// Fields of the sections of a configuration, from their schemas, for docs/reference/configuration.md.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle {

struct SectionFields {
  std::string name;  // "step_scheduler"
  std::vector<FieldInfo> fields;
};

// Returns the sections that the trainer reads, in the usual order of a file.
std::vector<SectionFields> section_fields();

namespace recipe {

// Each function is defined next to the reader of its section.
std::vector<FieldInfo> step_fields();
std::vector<FieldInfo> model_fields();
std::vector<FieldInfo> dataset_fields();
std::vector<FieldInfo> packed_fields();
std::vector<FieldInfo> dataloader_fields();
std::vector<FieldInfo> optimizer_fields();
std::vector<FieldInfo> group_fields();  // of entries of optimizer.param_group_overrides
std::vector<FieldInfo> lr_fields();
std::vector<FieldInfo> clipping_fields();
std::vector<FieldInfo> loss_fields();
std::vector<FieldInfo> checkpoint_fields();
std::vector<FieldInfo> samples_fields();

}  // namespace recipe
}  // namespace heddle
