// Opening the model of a run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heddle/model/unit.h"
#include "heddle/plugin/registry.h"
#include "trainer/loop/job.h"

namespace heddle {

// Reads config.json, or the configuration's own keys, and the headers of the weights. Throws Error.
JobModel open_model(const ModelSection& section, PluginRegistry& plugins, std::vector<std::string>& warnings);

// The file or directory of a model; empty where the configuration itself holds its shape.
std::filesystem::path place_of(const ModelSection& section);

// Tensors in the files that the model has no place for, the first of them by name.
void warn_of_unused(const JobModel& model, const Units& units, std::vector<std::string>& warnings);

// Every parameter must be there in its shape. Throws Error{input}.
void check_weights(const JobModel& model, const Units& units);

}  // namespace heddle
