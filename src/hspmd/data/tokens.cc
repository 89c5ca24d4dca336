#include "hspmd/data/tokens.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "hspmd/base/errors.h"
#include "hspmd/base/hash.h"

namespace hspmd {
namespace {

namespace fs = std::filesystem;
constexpr std::uint16_t kEnd = 256;

std::vector<std::string> files_below(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) invalid("[data] data.path must exist. Received \"{}\".", path);
  if (fs::is_regular_file(path, error)) return {path};
  if (!fs::is_directory(path, error)) invalid("[data] data.path must be a file or a folder. Received \"{}\".", path);
  std::vector<std::string> files;
  fs::recursive_directory_iterator it(path, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code unknown;  // such as a link to nowhere
    if (it->is_regular_file(unknown)) files.push_back(it->path().string());
  }
  if (error) invalid("[data] the folder {} must be readable: {}", path, error.message());
  if (files.empty()) invalid("[data] the folder {} must hold at least one file", path);
  std::sort(files.begin(), files.end());
  return files;
}

// Tokens with an index of documents (Megatron): a .bin that means something else than ours.
void refuse_indexed(const std::string& file) {
  std::error_code error;
  const fs::path path(file);
  const char* partner = path.extension() == ".bin" ? ".idx" : path.extension() == ".idx" ? ".bin" : nullptr;
  if (partner == nullptr || !fs::exists(fs::path(path).replace_extension(partner), error)) return;
  invalid("[data] {}: .bin with .idx is not built yet; it must be text or a .bin of uint16 tokens alone.", file);
}

void append_bytes(const std::string& path, std::vector<std::uint16_t>& ids) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(1 << 16);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || file.gcount() > 0) {
    for (std::streamsize i = 0; i < file.gcount(); ++i)
      ids.push_back(static_cast<unsigned char>(buffer[static_cast<std::size_t>(i)]));
  }
  if (!file.eof()) invalid("[data] the file {} must be readable", path);
  ids.push_back(kEnd);
}

}  // namespace

void Tokens::append(std::vector<std::uint16_t> ids) {
  if (ids.empty()) return;
  const auto count = static_cast<std::int64_t>(ids.size());
  auto owner = std::make_shared<const std::vector<std::uint16_t>>(std::move(ids));
  parts_.push_back({size_, owner->data(), owner});
  size_ += count;
}

void Tokens::append_mapped(const std::string& path, std::int64_t vocabulary) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) invalid("[data] the file {} must be readable", path);
  struct stat status = {};
  const bool known = fstat(file, &status) == 0;
  const auto bytes = known ? static_cast<std::size_t>(status.st_size) : 0;
  void* mapped = bytes > 0 ? mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  close(file);
  if (bytes == 0 || mapped == MAP_FAILED)
    invalid("[data] the file {} must hold uint16 tokens; it is empty or cannot be mapped", path);
  std::shared_ptr<const void> owner(mapped,
                                    [bytes](const void* address) { munmap(const_cast<void*>(address), bytes); });
  if (bytes % 2 != 0)
    invalid("[data] {} must hold uint16 tokens, an even number of bytes. Received {} bytes.", path, bytes);
  const auto* ids = static_cast<const std::uint16_t*>(mapped);
  for (std::size_t i = 0; i < bytes / 2; ++i) {
    if (ids[i] >= vocabulary)
      invalid("[data] {}: the token at byte {} must be below the model's vocabulary of {}. Received {}.", path, 2 * i,
              vocabulary, ids[i]);
  }
  parts_.push_back({size_, ids, std::move(owner)});
  size_ += static_cast<std::int64_t>(bytes / 2);
}

Tokens Tokens::of(std::vector<std::uint16_t> ids) {
  Tokens tokens;
  tokens.append(std::move(ids));
  return tokens;
}

Tokens Tokens::load(const std::vector<std::string>& paths, std::int64_t vocabulary) {
  Tokens tokens;
  std::vector<std::uint16_t> bytes;
  const auto flush = [&] {
    if (!bytes.empty() && vocabulary <= kEnd)
      invalid("[data] the byte tokenizer must have a vocabulary of at least 257. Received a model with {}.",
              vocabulary);
    tokens.append(std::move(bytes));
    bytes = {};
  };
  for (const std::string& path : paths) {
    for (const std::string& file : files_below(path)) {
      refuse_indexed(file);
      if (!file.ends_with(".bin")) {
        append_bytes(file, bytes);
        continue;
      }
      flush();
      tokens.append_mapped(file, vocabulary);
    }
  }
  flush();
  return tokens;
}

std::uint64_t Tokens::digest() const {
  std::uint64_t hash = kFnv1aStart;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const std::int64_t end = p + 1 < parts_.size() ? parts_[p + 1].begin : size_;
    const auto bytes = static_cast<std::size_t>(end - parts_[p].begin) * sizeof(std::uint16_t);
    hash = fnv1a({reinterpret_cast<const char*>(parts_[p].ids), bytes}, hash);
  }
  return hash;
}

std::int32_t Tokens::at(std::int64_t i) const {
  check_internal(i >= 0 && i < size_, "a token index lies in the data");
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), i,
                                      [](std::int64_t index, const Part& part) { return index < part.begin; });
  const Part& part = *std::prev(after);
  return part.ids[i - part.begin];
}

}  // namespace hspmd
