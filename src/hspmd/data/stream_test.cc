#include "hspmd/data/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

namespace fs = std::filesystem;

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = fs::temp_directory_path() / ("hspmd_data_" + std::to_string(getpid()));
    fs::create_directories(path_ / "b");
  }
  void TearDown() override { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  fs::path path_;
};

TEST_F(Folder, JoinsFilesInByteOrderEachWithAnEnd) {
  write("a", "xy");
  write("b/c", "z");
  write("b/B", "w");

  const Tokens tokens = Tokens::load({path_.string()}, 257);

  std::vector<int> ids;
  for (std::int64_t i = 0; i < tokens.size(); ++i) ids.push_back(tokens.at(i));
  EXPECT_EQ(ids, (std::vector<int>{'x', 'y', 256, 'w', 256, 'z', 256}));
}

TEST_F(Folder, MapsBinFilesAndChecksThem) {
  write("t.bin", std::string("\x01\x00\x00\x01", 4));
  const Tokens tokens = Tokens::load({(path_ / "t.bin").string()}, 257);
  EXPECT_EQ(tokens.size(), 2);
  EXPECT_EQ(tokens.at(1), 256);

  EXPECT_THROW((void)Tokens::load({(path_ / "t.bin").string()}, 256), InvalidArgument);
  write("odd.bin", "abc");
  EXPECT_THROW((void)Tokens::load({(path_ / "odd.bin").string()}, 257), InvalidArgument);
  write("empty.bin", "");
  EXPECT_THROW((void)Tokens::load({(path_ / "empty.bin").string()}, 257), InvalidArgument);
}

TEST_F(Folder, RefusesWhatIsNotThere) {
  EXPECT_THROW((void)Tokens::load({(path_ / "none").string()}, 257), InvalidArgument);
  fs::create_directories(path_ / "void");
  EXPECT_THROW((void)Tokens::load({(path_ / "void").string()}, 257), InvalidArgument);
  write("a", "x");
  EXPECT_THROW((void)Tokens::load({(path_ / "a").string()}, 256), InvalidArgument);
}

TEST_F(Folder, RefusesTokensWithAnIndexOfDocuments) {
  write("t.bin", std::string("\x01\x00", 2));
  write("t.idx", "MMIDIDX");

  for (const fs::path& path : {path_, path_ / "t.bin", path_ / "t.idx"}) {
    EXPECT_THROW((void)Tokens::load({path.string()}, 257), InvalidArgument) << path;
  }
}

TEST_F(Folder, RefusesWhatIsNeitherFileNorFolder) {
  EXPECT_THROW((void)Tokens::load({"/dev/zero"}, 257), InvalidArgument);
}

TEST_F(Folder, PassesLinksToNowhere) {
  write("a", "x");
  fs::create_symlink(path_ / "none", path_ / "link");

  EXPECT_EQ(Tokens::load({path_.string()}, 257).size(), 2);
}

TEST_F(Folder, NamesTheTokenThatTheVocabularyLacks) {
  write("t.bin", std::string("\x01\x00\x09\x00", 4));
  try {
    (void)Tokens::load({(path_ / "t.bin").string()}, 9);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("byte 2")) << error.what();
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Received 9")) << error.what();
  }
}

TEST(Stream, SamplesOverlapByOneToken) {
  Stream stream(Tokens::of({0, 1, 2, 3, 4, 5, 6, 7, 8}), 4, Shuffle::kNo, 1);
  EXPECT_EQ(stream.samples(), 2);
  EXPECT_EQ(stream.first_token(0), 0);
  EXPECT_EQ(stream.first_token(1), 4);
  EXPECT_EQ(stream.first_token(2), 0);  // the next epoch
}

TEST(Stream, AnEpochIsAPermutationThatSeedAndEpochFix) {
  const auto epoch = [](std::uint64_t seed, std::int64_t index) {
    Stream stream(Tokens::of(std::vector<std::uint16_t>(201)), 2, Shuffle::kYes, seed);
    stream.prepare(index * 100, index * 100 + 100);
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < 100; ++i) order.push_back(stream.first_token(index * 100 + i));
    return order;
  };
  const auto first = epoch(1, 0);

  EXPECT_EQ(std::set<std::int64_t>(first.begin(), first.end()).size(), 100U);
  EXPECT_EQ(first, epoch(1, 0));
  EXPECT_NE(first, epoch(1, 1));
  EXPECT_NE(first, epoch(2, 0));
}

TEST(Stream, NeedsOneSample) {
  EXPECT_THROW(Stream(Tokens::of({1, 2, 3}), 3, Shuffle::kNo, 1), InvalidArgument);
}

}  // namespace
}  // namespace hspmd
