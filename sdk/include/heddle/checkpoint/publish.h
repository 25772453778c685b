// Directories that appear under their name only when all of them is on the disk.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/mesh/rendezvous.h"

namespace heddle::checkpoint {

// A file or a directory as it is now outlasts a power cut. Throws Error{io}.
HEDDLE_API void sync(const std::filesystem::path& path);

// Makes a directory and those above it, where they are missing, so that a power cut does not take them away
// with all that was synced in them. Throws Error{io}.
HEDDLE_API void make_directories(const std::filesystem::path& path);

// Where a directory is put together before it is published: its name with ".incomplete" behind it.
HEDDLE_API std::filesystem::path stage_of(const std::filesystem::path& directory);

// Makes the empty stage of a directory (elsewhere where one is given, on the same file system), in the place
// of one that an interrupted save has left. Throws Error{io} when the directory itself is there already.
HEDDLE_API void open_stage(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Syncs every file and directory of the stage, renames it, and syncs the directories above. Whatever
// interrupts it, the directory is either whole or not there. Throws Error{io}.
HEDDLE_API void publish(const std::filesystem::path& directory, std::filesystem::path stage = {});

// Whether a directory can be renamed from the one place to the other: both lie on one file system, or will,
// where they are not there yet.
HEDDLE_API bool on_one_file_system(const std::filesystem::path& a, const std::filesystem::path& b);

// Lets the link LINK name the directory TARGET beside it; a text file LINK.txt where the file system has no
// links. A reader sees the old target or the new one. Throws Error{io}.
HEDDLE_API void point(const std::filesystem::path& link, const std::string& target);

// Before `target` is published: from the moment it is there, the link names it, also where the process ends
// before point(), or the power goes. Throws Error{io}.
HEDDLE_API void announce(const std::filesystem::path& link, const std::string& target);

// What was announced and is there takes the link's place: until then only pointed() knows. What is not there
// is announced no more. Throws Error{io}.
HEDDLE_API void settle(const std::filesystem::path& link);

// What such a link names, or will once point() is through; "" where there is none.
HEDDLE_API std::string pointed(const std::filesystem::path& link);

// A piece of work on disk that every rank does its part of: it succeeds on all ranks or fails on all.

// A meeting of all ranks after `work`; `key` is used once in a run. Where the work of some ranks threw, the
// Error of the lowest of them is thrown on every rank, so that nobody waits for one that is gone. The work
// may take longer than the meeting's timeout, which is of ranks that give no sign; rank 0 warns then.
HEDDLE_API void together(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

// The same, and rank 0 gets what the work of each rank returned, in rank order; the others get nothing.
HEDDLE_API std::vector<std::string> tell_first(Rendezvous& meeting, const std::string& key,
                                               const std::function<std::string()>& work);

// The same for work that rank 0 does alone.
HEDDLE_API void on_first(Rendezvous& meeting, const std::string& key, const std::function<void()>& work);

}  // namespace heddle::checkpoint
