// CLI11 options of the commands data and generate.
#include "trainer/cli/main/text_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

namespace heddle::cli {
namespace {

// Parses words such as "1,2,3". An empty id, as in "1,,2", is an error.
std::vector<int64_t> token_ids(const std::vector<std::string>& words) {
  std::vector<int64_t> ids;
  for (const std::string& word : words)
    for (size_t from = 0; from <= word.size();) {
      const size_t comma = std::min(word.find(',', from), word.size());
      const std::string id = word.substr(from, comma - from);
      const auto [end, failure] = std::from_chars(id.data(), id.data() + id.size(), ids.emplace_back());
      if (id.empty() || failure != std::errc() || end != id.data() + id.size())
        throw CLI::ValidationError("--tokens", "expected whole numbers separated by commas, got '" + word +
                                                   "'" + (id.empty() ? ", which contains an empty id" : ""));
      from = comma + 1;
    }
  return ids;
}

}  // namespace

void add_data(CLI::App& app, DataCommand& to) {
  CLI::App* command = app.add_subcommand("data", "Tokenizes text files into a token file");
  command->add_option("TEXT", to.texts, "Text files (UTF-8) in order; - is standard input")->required();
  command->add_option("--out", to.out, "Token file to write")->required()->option_text("FILE");
  command->add_flag("--force", to.force, "Replace FILE if it exists");
  auto* tokenizer = command
                        ->add_option("--tokenizer", to.tokenizer,
                                     "Model directory with a tokenizer.json (default: tokens are bytes)")
                        ->option_text("DIR");
  auto* lines = command->add_flag("--lines", to.lines, "Treat each line as a document (default: each file)");
  auto* field = command
                    ->add_option("--field", to.field,
                                 "Read JSON Lines, with the document in this field (*.jsonl: text)")
                    ->option_text("NAME");
  auto* end = command
                  ->add_option("--end-token", to.end_token,
                               "Token after each document (default: the model's end token)")
                  ->option_text("TOKEN");
  for (CLI::Option* option : {lines, field, end}) option->needs(tokenizer);
  lines->excludes(field);
  command->footer("heddle data show RUN.yaml prints the samples that heddle prepare has made for a recipe");
}

void add_show(CLI::App& app, ShowCommand& to) {
  CLI::App* command =
      app.add_subcommand("data", "Tokenizes texts and shows prepared samples")
          ->add_subcommand("show",
                           "Prints prepared samples as text, with marks on trained tokens and counts");
  command->add_option("FILE", to.files, "Recipes, whose samples are shown, or NAME.samples files")
      ->required();
  command->add_option("--from", to.first, "First sample to show, counted from 1")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 48));
  command->add_option("--samples", to.count, "Number of samples to show")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--tokenizer", to.tokenizer,
                   "Directory of the tokenizer.json to use (default: the one that made the file)")
      ->option_text("DIR");
  command
      ->add_option("--color", to.colour,
                   "Color output: auto, always or never; without color, trained tokens are in [[...]]")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->option_text("WHEN");
}

namespace {

void add_tokens(CLI::App& command, CLI::Option* prompt, GenerateCommand& to) {
  command
      .add_option_function<std::vector<std::string>>(
          "--tokens", [&to](const std::vector<std::string>& words) { to.tokens = token_ids(words); },
          "Token ids to continue instead of a prompt, separated by commas; prints ids")
      ->type_name("INT")
      ->excludes(prompt);
}

}  // namespace

void add_generate(CLI::App& app, GenerateCommand& to) {
  CLI::App* command = app.add_subcommand("generate", "Generates text with a trained model");
  command
      ->add_option("DIR", to.directory,
                   "Hugging Face directory, checkpoint_dir of a run, or a checkpoint in it")
      ->required();
  command->add_option("--config", to.config, "YAML file of a run, to load its plugins")->option_text("FILE");
  auto* prompt = command->add_option("--prompt", to.prompt, "Text to continue");
  command
      ->add_flag(
          "--chat", to.chat,
          "Render the prompt as a user message with the tokenizer's chat template, and print the answer")
      ->needs(prompt);
  command
      ->add_option("--tokenizer", to.tokenizer,
                   "Directory of the tokenizer.json to use (default: the model's own)")
      ->option_text("DIR");
  add_tokens(*command, prompt, to);
  command->add_option("--max-new-tokens,--max-tokens", to.max_new_tokens, "Maximum number of new tokens")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--temperature", to.temperature, "Sampling temperature; 0 selects the most likely token")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--top-k", to.top_k, "Sample from the k most likely tokens; 0: from all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command
      ->add_option("--top-p", to.top_p,
                   "Sample from the most likely tokens whose probabilities sum to P; 1: from all")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", to.seed, "Seed of sampling")->capture_default_str();
}

}  // namespace heddle::cli
