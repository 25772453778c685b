// The functions of the commands that need LibTorch. Each returns the exit status, and throws Error.
#pragma once

#include "lib/data/texts/prepared.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// `heddle train`: checks the run, starts its ranks, trains.
int train(const TrainCommand& command);
// `heddle check`: validates configurations and prints the resolved runs.
int check(const CheckCommand& command);
// `heddle convert`: a sharded model as a Hugging Face directory, and the other way round.
int convert(const ConvertCommand& command);
// `heddle data`: makes a token file from texts.
int data(const DataCommand& command);
// `heddle data show`: prints prepared samples as text, with what is trained on.
int show_samples(const ShowCommand& command);
// `heddle generate`: continues a text with a trained model.
int generate(const GenerateCommand& command);
// `heddle plan`: which layouts of a run fit a machine, and how fast they are. Returns 2 where no layout fits.
int plan(const PlanCommand& command);
// `heddle plugins`: lists, inspects, checks and creates plugins.
int plugins(const PluginsCommand& command);
// `heddle prepare`: makes the files of prepared samples that a run needs, or says that they are there.
int prepare(const PrepareCommand& command);
// `heddle schedule`: the table that a plugin's schedule plans, or with --compare all of them. Throws
// Error{usage} for sizes that the schedule does not take.
int schedule(const ScheduleCommand& command);

// How a command prepares samples: with lines on standard error, unless `is_quiet`.
PreparationOptions preparation_of(bool is_quiet);

}  // namespace heddle::cli
