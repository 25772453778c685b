// `heddle prepare`: prepares samples as `heddle train` does before its first step.
#include "trainer/cli/run_commands.h"

#include <iostream>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "lib/data/outputs.h"
#include "lib/data/samples/sample_file.h"
#include "lib/run/preflight/open_texts.h"
#include "trainer/cli/configuration.h"

namespace heddle::cli {

PreparationOptions preparation_of(bool is_quiet) {
  PreparationOptions out;
  if (!is_quiet) out.say = [](const std::string& line) { std::cerr << line << std::endl; };
  return out;
}

int prepare(const PrepareCommand& command) {
  const Recipe recipe =
      read_recipe(read_configuration(command.config, command.overrides), RecipeErrors::kept);
  if (!command.out.empty()) {
    const Output directory{
        command.out, "--out", "directory of prepared samples", {}, Output::Form::directory};
    refuse_outputs({&directory, 1}, {});
  }
  PreparationOptions preparation = preparation_of(false);
  preparation.directory = command.out;
  preparation.jobs = command.jobs;
  PluginRegistry plugins = open_plugins(recipe, Log::to_stderr(0));
  const std::vector<PreparedFile> files = prepare_texts(recipe, plugins, preparation);
  for (const PreparedFile& one : files) {
    for (const std::string& warning : one.warnings) std::cerr << "warning: " << warning << std::endl;
    const SampleFile samples(one.file);
    std::cout << one.file.string() << ": " << samples.size() << " samples, " << samples.header().tokens
              << " tokens" << (one.is_made ? "" : ", already prepared") << "\n";
  }
  if (files.empty()) std::cout << "nothing to prepare: no data set of this run has texts\n";
  return 0;
}

}  // namespace heddle::cli
