// The data set of token files, an offer like that of a plugin, and the data sets that a run knows by name.
#pragma once

#include "heddle/plugin/dataset.h"
#include "heddle/plugin/registry.h"

namespace heddle {

// Token files of nanoGPT, AutoModel and Megatron, with or without lengths of samples.
const OfferedDataset& token_files();

// Throws MissingData where a pattern of file_pattern or lengths matches no file. Other keys are not looked
// at.
void look_for_token_files(const Node& section);

// The data set of this name: of heddle itself, or of a plugin. Null: there is none.
const OfferedDataset* find_dataset(PluginRegistry& plugins, const std::string& name);
std::vector<std::string> dataset_names(const PluginRegistry& plugins);

}  // namespace heddle
