// Commands that need LibTorch. Each returns the exit status and throws Error.
#pragma once

#include "lib/data/texts/prepared.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// `heddle train`: checks the run, starts its ranks, trains.
int train(const TrainCommand& command);
// `heddle check`: validates configurations and prints the resolved runs.
int check(const CheckCommand& command);
// `heddle convert`: converts a sharded model to a Hugging Face directory, or back.
int convert(const ConvertCommand& command);
// `heddle data`: tokenizes text files into a token file.
int data(const DataCommand& command);
// `heddle data show`: prints prepared samples as text, with marks on trained tokens.
int show_samples(const ShowCommand& command);
// `heddle generate`: generates text with a trained model.
int generate(const GenerateCommand& command);
// `heddle plan`: finds layouts that fit a machine and predicts their speed. Returns 2 if no layout fits.
int plan(const PlanCommand& command);
// `heddle plugins`: lists, inspects, checks and creates plugins.
int plugins(const PluginsCommand& command);
// `heddle prepare`: prepares the samples that a run needs, or reports that they exist.
int prepare(const PrepareCommand& command);
// `heddle schedule`: prints the table of a schedule, or with --compare those of all schedules. Throws
// Error{usage} for sizes that the schedule does not support.
int schedule(const ScheduleCommand& command);

// Returns how a command prepares samples: with progress lines on standard error, unless `is_quiet`.
PreparationOptions preparation_of(bool is_quiet);

}  // namespace heddle::cli
