// Prepares samples with a file lock, a Python process, and a rename.
#include "lib/data/texts/prepared.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "heddle/base/error.h"
#include "lib/data/samples/sample_file.h"
#include "lib/data/tokenizer/python_process.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::chrono::milliseconds kPollInterval{250};
constexpr std::chrono::seconds kReportInterval{10};
constexpr const char* kScript = "prepare/heddle_prepare.py";
constexpr const char* kNotes = ".sources.json";

// A lock on a file, released when the process exits.
class FileLock {
 public:
  explicit FileLock(const fs::path& file) : file_(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (file_ < 0)
      throw Error(ErrorCode::io, file.string(), std::string("cannot be created: ") + std::strerror(errno),
                  "prepared samples are stored there; set HEDDLE_DATA to another directory");
  }
  ~FileLock() { close(file_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  // On a file system without locks every process gets it: each writes its own file, and the last rename wins.
  bool is_taken() const { return flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

 private:
  int file_;
};

int64_t number_at(const json& map, const char* key) {
  const auto at = map.find(key);
  return at != map.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}

std::string text_at(const json& map, const char* key) {
  const auto at = map.find(key);
  return at != map.end() && at->is_string() ? at->get<std::string>() : "";
}

std::string time_left_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return whole >= 60 ? std::to_string(whole / 60) + "m " + std::to_string(whole % 60) + "s left"
                     : std::to_string(whole) + "s left";
}

Error error_of(const TextJob& job, const json& error) {
  const std::string kind = text_at(error, "kind"), where = text_at(error, "where"),
                    what = text_at(error, "what"), hint = text_at(error, "hint");
  const std::string key = where.starts_with("dataset.") ? where.substr(8) : "";
  const Node* given = key.empty() ? nullptr : job.section.find(key);
  const std::string place = given != nullptr ? given->where()
                            : where.empty()  ? job.where
                            : !key.empty()   ? job.where + "." + key
                                             : where;
  if (kind == "package")
    return Error(ErrorCode::input, job.where, PythonProcess::python() + " has no package " + what,
                 hint.empty()
                     ? "pip install tokenizers jinja2 pyarrow; or set HEDDLE_PYTHON to another Python; "
                       "or run heddle prepare on another machine and set HEDDLE_DATA"
                     : hint);
  if (kind == "plugin")
    return Error(ErrorCode::plugin_failed, place, what,
                 "check the row; if it is correct, report the error to the plugin's author");
  return Error(kind == "config" ? ErrorCode::config : ErrorCode::input, place, what, hint);
}

// Throws the error together with those of later rows.
[[noreturn]] void refuse(const TextJob& job, const json& error) {
  Errors errors;
  errors.add(error_of(job, error));
  for (const json& more : error.value("more", json::array())) errors.add(error_of(job, more));
  errors.raise();
  throw error_of(job, error);
}

class Preparation {
 public:
  Preparation(const TextJob& job, const PreparationOptions& options, std::string key, std::string texts,
              const fs::path& file)
      : job_(job), options_(options), key_(std::move(key)), texts_(std::move(texts)), file_(file) {}

  // Returns false if another process has prepared the file meanwhile.
  bool make() {
    const FileLock lock(fs::path(file_.string() + ".lock"));
    for (Clock::time_point said = Clock::now(); !lock.is_taken();) {
      std::this_thread::sleep_for(kPollInterval);
      if (is_there()) return false;
      if (Clock::now() - said < kReportInterval) continue;
      said = Clock::now();
      say("waiting for another process, which prepares " + file_.filename().string());
    }
    if (is_there()) return false;
    run();
    return true;
  }

  std::vector<std::string> warnings;

 private:
  bool is_there() const {
    std::error_code ignored;
    return fs::exists(file_, ignored);
  }

  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  void run() {
    const fs::path unfinished = file_.string() + ".incomplete";
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    begin_ = said_ = Clock::now();
    say("preparing " + subject());
    PythonProcess python(kScript, "-");
    python.send(message_of(job_, key_, texts_, unfinished, options_.jobs > 0 ? options_.jobs : cores));
    json done;
    while (done.is_null())
      if (python.has_message(kReportInterval - (Clock::now() - said_)))
        done = taken(python.receive().words);
      else
        report();
    seal_samples(unfinished);
    fs::rename(unfinished, file_);
    const std::chrono::duration<double> seconds = Clock::now() - begin_;
    char took[32];
    std::snprintf(took, sizeof(took), " in %.1f s", seconds.count());
    say("prepared " + subject() + ": " + std::to_string(number_at(done, "samples")) + " samples, " +
        std::to_string(number_at(done, "tokens")) + " tokens, " + std::to_string(number_at(done, "labels")) +
        " of them trained on" + took);
  }

  std::string subject() const { return job_.source.empty() ? job_.name : job_.name + " of " + job_.source; }

  // Returns null if the preparation continues.
  json taken(const json& words) {
    if (words.contains("error")) refuse(job_, words["error"]);
    if (words.contains("warning")) warnings.push_back(job_.where + ": " + text_at(words, "warning"));
    if (words.contains("note")) say(subject() + ": " + text_at(words, "note"));
    if (words.contains("rows")) {
      rows_ = number_at(words, "rows");
      of_ = number_at(words, "of");
    }
    report();
    return words.contains("done") ? words["done"] : json();
  }

  void report() {
    if (Clock::now() - said_ < kReportInterval) return;
    said_ = Clock::now();
    const double seconds = std::chrono::duration<double>(said_ - begin_).count();
    std::string text = subject() + ": " + std::to_string(rows_);
    if (of_ > 0) text += " of " + std::to_string(of_);
    text += " rows";
    if (of_ > rows_ && rows_ > 0)
      text += ", " + time_left_text(seconds * static_cast<double>(of_ - rows_) / static_cast<double>(rows_));
    say(text);
  }

  const TextJob& job_;
  const PreparationOptions& options_;
  const std::string key_, texts_;
  const fs::path& file_;
  Clock::time_point begin_, said_;
  int64_t rows_ = 0, of_ = 0;  // of_ 0: unknown
};

}  // namespace

std::optional<PreparedFile> find_or_prepare(const TextJob& job, const PreparationOptions& options,
                                            std::span<const fs::path> places) {
  std::error_code failed;
  const fs::path& own = places.front();
  const bool is_there = fs::is_directory(own, failed);
  if (options.make && !is_there && !fs::create_directories(own, failed) && failed)
    throw Error(ErrorCode::io, own.string(), "cannot be created: " + failed.message(),
                "prepared samples are stored there; set HEDDLE_DATA to another directory");
  const std::string key = key_of(job, is_there || options.make ? own / kNotes : fs::path());
  const std::string name = job.name + "-" + key + ".samples";
  for (const fs::path& place : places)
    if (fs::exists(place / name, failed)) return PreparedFile{place / name, false, {}};
  if (!options.make) return std::nullopt;
  const fs::path file = own / name;
  Preparation preparation(job, options, key, texts_checksum(job, places), file);
  const bool is_made = preparation.make();
  return PreparedFile{file, is_made, std::move(preparation.warnings)};
}

std::string texts_checksum(const TextJob& job, std::span<const fs::path> places) {
  std::error_code ignored;
  const fs::path& own = places.front();
  return texts_checksum(job, fs::is_directory(own, ignored) ? own / kNotes : fs::path());
}

std::optional<int64_t> probe_texts(const TextJob& job) {
  std::optional<PythonProcess> python;
  try {
    python.emplace(kScript, "-");
  } catch (const Error& error) {
    if (error.code() == ErrorCode::input) return std::nullopt;  // Python cannot be started
    throw;
  }
  json words = message_of(job, "", "", "probe", 1);  // writes nothing
  words["probe"] = true;
  python->send(std::move(words));
  while (true) {
    const json answer = python->receive().words;
    if (answer.contains("error")) {
      if (text_at(answer["error"], "kind") == "package") return std::nullopt;
      refuse(job, answer["error"]);
    }
    if (answer.contains("done")) return number_at(answer["done"], "probed");
  }
}

}  // namespace heddle
