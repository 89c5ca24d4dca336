#include "hspmd/models/llama_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hspmd {
namespace {

using ::testing::HasSubstr;

constexpr const char* kLeast = R"("vocab_size": 257, "hidden_size": 256, "intermediate_size": 704,
  "num_hidden_layers": 6, "num_attention_heads": 8)";

LlamaConfig read(const std::string& more) {
  return read_llama_config(parse_config(fmt::format("{{{}{}}}", kLeast, more), "config.json"));
}

std::string complaint(const std::string& more) {
  try {
    (void)read(more);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(LlamaConfig, WhatIsLeftOutIsAsHuggingFaceHasIt) {
  const LlamaConfig config = read("");

  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.rms_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.tied, TiedEmbeddings::kNo);
  EXPECT_EQ(read(R"(, "rms_norm_eps": 1e-05)").rms_eps, 1e-5);
}

TEST(LlamaConfig, TheBandsOfScalingMustBeApart) {
  const auto scaling = [](const char* low, const char* high) {
    return fmt::format(R"(, "rope_scaling": {{"rope_type": "llama3", "factor": 8, "low_freq_factor": {},
      "high_freq_factor": {}, "original_max_position_embeddings": 8192}})",
                       low, high);
  };
  EXPECT_EQ(read(scaling("1", "4")).rope_scaling.high_freq_factor, 4);
  for (const char* high : {"1", "0.5"}) {
    EXPECT_THAT(complaint(scaling("1", high)),
                HasSubstr("rope_scaling.high_freq_factor must be above low_freq_factor"));
  }
}

TEST(LlamaPreset, AnUnknownNameIsAnsweredWithTheNearest) {
  EXPECT_THROW(
      {
        try {
          (void)llama_preset("tinny");
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("the nearest is \"tiny\""));
          throw;
        }
      },
      InvalidArgument);
}

}  // namespace
}  // namespace hspmd
