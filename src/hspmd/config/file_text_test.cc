#include "hspmd/config/file_text.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

using ::testing::EndsWith;

class FileText : public ::testing::Test {
 protected:
  FileText() : folder_(std::filesystem::temp_directory_path() / fmt::format("file_text_{}", getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~FileText() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string fifo() const {
    EXPECT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
    return path("fifo");
  }
  static std::string complaint(const std::string& path) {
    try {
      (void)read_file_text(path);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "none";
  }

 private:
  std::filesystem::path folder_;
};

void put(int descriptor, const std::string& text) {
  EXPECT_EQ(write(descriptor, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

TEST_F(FileText, ARegularFileIsReadWhole) {
  for (const std::size_t bytes : {0U, 1U, 65535U, 65536U, 65537U, 200000U}) {
    const std::string text(bytes, 'x');
    std::ofstream(path("file")) << text;
    EXPECT_EQ(read_file_text(path("file")), text);
  }
}

TEST_F(FileText, WhatHasNoEndOrIsNoDataIsRefused) {
  EXPECT_EQ(complaint(path("none")), path("none") + ": the file must exist and be readable");
  EXPECT_EQ(complaint(path("")), path("") + ": must be a file, is a folder");
  for (const char* device : {"/dev/zero", "/dev/null", "/dev/random"})
    EXPECT_EQ(complaint(device), std::string(device) + ": must be a file, a pipe or a terminal");
  std::ofstream(path("long")) << "";
  std::filesystem::resize_file(path("long"), kMaxFileBytes + 1);
  EXPECT_THAT(complaint(path("long")), EndsWith("at most 64 MiB"));
}

TEST_F(FileText, APipeIsReadToItsEndHoweverSlowlyItIsWritten) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    for (const char* part : {"one ", "two ", "three"}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      put(ends[1], part);
    }
    close(ends[1]);
  });
  EXPECT_EQ(read_file_text(fmt::format("/dev/fd/{}", ends[0])), "one two three");
  writer.join();
  close(ends[0]);
}

TEST_F(FileText, APipeThatEndedBeforeItWasReadHasItsText) {
  for (const char* text : {"", "text"}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    put(ends[1], text);
    close(ends[1]);
    EXPECT_EQ(read_file_text(fmt::format("/dev/fd/{}", ends[0])), text);
    close(ends[0]);
  }
}

TEST_F(FileText, ANamedPipeWaitsForItsWriter) {
  const std::string name = fifo();
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const int descriptor = open(name.c_str(), O_WRONLY);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    put(descriptor, "late");
    close(descriptor);
  });
  EXPECT_EQ(read_file_text(name), "late");
  writer.join();
}

TEST_F(FileText, ANamedPipeThatNobodyOpensIsGivenUp) {
  const std::string name = fifo();
  EXPECT_EQ(complaint(name), name + ": somebody must write to this pipe; nobody has opened it");
}

TEST_F(FileText, APipeWithoutEndIsReadTo64MiB) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    const std::string block(1 << 16, 'x');
    for (std::size_t bytes = 0; bytes <= kMaxFileBytes; bytes += block.size()) put(ends[1], block);
  });
  EXPECT_THAT(complaint(fmt::format("/dev/fd/{}", ends[0])), EndsWith("at most 64 MiB"));
  writer.join();
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace hspmd
