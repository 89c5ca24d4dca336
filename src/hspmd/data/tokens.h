// Tokens: the joined token ids of files and folders.
//
//   byte tokenizer   ids 0-255; 256 ends a document. Files of a folder in byte order of their paths, each followed by
//                    the end token, all joined.
//   .bin             uint16, little endian, mapped into memory and not copied; its ids are taken as they are.
//
// Throws InvalidArgument for a path that does not exist, an empty folder, an unreadable file, an odd number of bytes
// in a .bin, or an id that the vocabulary lacks (with file and offset).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hspmd {

class Tokens {
 public:
  [[nodiscard]] static Tokens load(const std::vector<std::string>& paths, std::int64_t vocabulary);
  [[nodiscard]] static Tokens of(std::vector<std::uint16_t> ids);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int32_t at(std::int64_t i) const;
  // Equal where all ids are.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct Part {
    std::int64_t begin = 0;  // of its tokens in the whole
    const std::uint16_t* ids = nullptr;
    std::shared_ptr<const void> owner;  // a vector or a mapping
  };
  void append(std::vector<std::uint16_t> ids);
  void append_mapped(const std::string& path, std::int64_t vocabulary);

  std::vector<Part> parts_;
  std::int64_t size_ = 0;
};

}  // namespace hspmd
