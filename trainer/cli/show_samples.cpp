// `heddle data show`: prints samples as text, alternating between trained and other tokens.
#include "trainer/cli/run_commands.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "lib/data/samples/sample_file.h"
#include "lib/data/samples/sample_set.h"
#include "lib/data/tokenizer/tokenizer.h"
#include "lib/run/preflight/open_texts.h"
#include "trainer/cli/configuration.h"

namespace heddle::cli {
namespace {

// Marks around trained tokens: colors on a terminal, brackets elsewhere.
struct Marks {
  const char *begin, *end;
};

Marks marks_of(const std::string& colour) {
  const bool on = colour == "always" ||
                  (colour == "auto" && isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr);
  return on ? Marks{"\033[32m", "\033[0m"} : Marks{"[[", "]]"};
}

int64_t trained_in(const SampleFile& file, int64_t sample) {
  int64_t out = 0;
  for (const TokenRun& run : file.runs_of(sample)) out += run.end - run.begin;
  return out;
}

std::string text_of(const SampleFile& file, int64_t sample, Tokenizer& tokenizer, Marks marks) {
  std::vector<int64_t> tokens(static_cast<size_t>(file.tokens_of(sample)));
  file.read(sample, tokens);
  const auto part = [&](size_t begin, size_t end) {
    return begin == end ? std::string() : tokenizer.decode_all(std::span(tokens).subspan(begin, end - begin));
  };
  std::string out;
  size_t at = 0;
  for (const TokenRun& run : file.runs_of(sample)) {
    out += part(at, run.begin) + marks.begin + part(run.begin, run.end) + marks.end;
    at = run.end;
  }
  return out + part(at, tokens.size());
}

void print_counts(const SampleFile& file) {
  int64_t trained = 0, longest = 0, without = 0;
  for (int64_t sample = 0; sample < file.size(); ++sample) {
    const int64_t of_sample = trained_in(file, sample);
    trained += of_sample;
    without += of_sample == 0 ? 1 : 0;
    longest = std::max(longest, file.tokens_of(sample));
  }
  std::cout << file.path().string() << ": " << file.size() << " samples, " << file.header().tokens
            << " tokens, " << trained << " of them trained on, the longest sample has " << longest << "\n";
  if (without > 0) std::cout << without << " samples have no token that is trained on\n";
}

}  // namespace

namespace {

void show_file(const std::string& name, const ShowCommand& command) {
  const SampleFile file(name);
  file.verify_tokens();
  print_counts(file);
  if (command.first > file.size())
    throw Error(ErrorCode::usage, "--from", name + " has " + std::to_string(file.size()) + " samples",
                "samples are counted from 1");
  const std::string directory =
      command.tokenizer.empty() ? read_description(file).tokenizer : command.tokenizer;
  if (directory.empty())
    throw Error(ErrorCode::input, name, "does not name its tokenizer", "set --tokenizer DIR");
  Tokenizer tokenizer(directory);
  const Marks marks = marks_of(command.colour);
  const int64_t end = std::min(file.size(), command.first - 1 + command.count);
  for (int64_t sample = command.first - 1; sample < end; ++sample)
    std::cout << "--- sample " << sample + 1 << ": " << file.tokens_of(sample) << " tokens, "
              << trained_in(file, sample) << " trained on\n"
              << text_of(file, sample, tokenizer, marks) << "\n";
}

bool is_recipe(const std::string& name) {
  return name.ends_with(".yaml") || name.ends_with(".yml");
}

// Returns the sample files of the recipe: of its training set, then of its validation sets.
std::vector<std::string> samples_of_run(const std::string& name, const ShowCommand& command) {
  const Recipe recipe = read_recipe(read_configuration(name, command.overrides), RecipeErrors::kept);
  PreparationOptions found;
  found.make = false;
  PluginRegistry plugins = open_plugins(recipe, Log::to_stderr(0));
  std::vector<std::string> out;
  for (const PreparedFile& file : prepare_texts(recipe, plugins, found)) out.push_back(file.file.string());
  if (out.empty())
    throw Error(ErrorCode::usage, name, "has no data set of texts, so there are no samples to show",
                "use a recipe whose dataset has texts");
  return out;
}

}  // namespace

int show_samples(const ShowCommand& command) {
  std::vector<std::string> files;
  for (const std::string& name : command.files)
    if (is_recipe(name)) {
      for (std::string& file : samples_of_run(name, command)) files.push_back(std::move(file));
    } else if (!command.overrides.empty()) {
      throw Error(ErrorCode::usage, "--" + command.overrides.front().key,
                  "overrides a value of a recipe, but " + name + " is a file of samples",
                  "give the recipe: heddle data show RUN.yaml");
    } else {
      files.push_back(name);
    }
  for (const std::string& name : files) {
    if (&name != &files.front()) std::cout << "\n";
    show_file(name, command);
  }
  return 0;
}

}  // namespace heddle::cli
