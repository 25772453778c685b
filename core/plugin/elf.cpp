// Every offset and size is compared with the size of the file before it is used.
#include "core/plugin/elf.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "core/base/regular_file.h"
#include "heddle/base/error.h"

namespace heddle::plugin {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr int kMachine = EM_AARCH64;
#endif
constexpr uint64_t kMostSectionBytes = 1 << 16;  // the manifest is a few hundred bytes

class ElfFile {
 public:
  explicit ElfFile(const std::filesystem::path& file) : path_(file.string()) {
    refuse_irregular(file, ErrorCode::plugin_failed);
    in_.open(file, std::ios::binary);
    if (!in_)
      throw Error(ErrorCode::plugin_failed, path_, "the file cannot be read", "look at its permissions");
    in_.seekg(0, std::ios::end);
    size_ = static_cast<uint64_t>(in_.tellg());
  }

  [[noreturn]] void refuse(const std::string& why, const std::string& hint) const {
    throw Error(ErrorCode::plugin_failed, path_, why, hint);
  }

  void read(uint64_t offset, void* to, uint64_t bytes) {
    if (offset > size_ || bytes > size_ - offset)
      refuse("the file is cut: it has " + std::to_string(size_) + " bytes, and its headers describe more",
             "copy or build the plugin again");
    in_.seekg(static_cast<std::streamoff>(offset));
    in_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (!in_) refuse("the file cannot be read", "look at the disk and its permissions");
  }

  uint64_t size() const { return size_; }

 private:
  std::string path_;
  std::ifstream in_;
  uint64_t size_ = 0;
};

Elf64_Ehdr read_header(ElfFile& file) {
  constexpr const char* kHint = "give a shared library built with heddle_add_plugin()";
  Elf64_Ehdr header{};
  char magic[SELFMAG] = {};
  if (file.size() >= SELFMAG) file.read(0, magic, SELFMAG);
  if (std::memcmp(magic, ELFMAG, SELFMAG) != 0)
    file.refuse("this is not a shared library (no ELF header)", kHint);
  file.read(0, &header, sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine)
    file.refuse("the library is for another machine", "build the plugin on the machine that runs it");
  if (header.e_type != ET_DYN) file.refuse("this is an ELF file, but not a shared library", kHint);
  return header;
}

}  // namespace

std::optional<std::string> read_section(const std::filesystem::path& path, std::string_view wanted) {
  ElfFile file(path);
  const Elf64_Ehdr header = read_header(file);
  if (header.e_shoff == 0 || header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr))
    return std::nullopt;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  file.read(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr));
  if (header.e_shstrndx >= sections.size()) return std::nullopt;
  const Elf64_Shdr& names = sections[header.e_shstrndx];
  std::string name(wanted.size() + 1, '\0');
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name > names.sh_size || names.sh_size - section.sh_name < name.size()) continue;
    file.read(names.sh_offset + section.sh_name, name.data(), name.size());
    if (name.compare(0, wanted.size(), wanted) != 0 || name.back() != '\0') continue;
    if (section.sh_type == SHT_NOBITS || section.sh_size > kMostSectionBytes)
      file.refuse("the section of the manifest has no sensible size", "build the plugin again");
    std::string bytes(section.sh_size, '\0');
    file.read(section.sh_offset, bytes.data(), bytes.size());
    return bytes;
  }
  return std::nullopt;
}

}  // namespace heddle::plugin
