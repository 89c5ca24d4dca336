#include "hspmd/config/config_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRun = R"(format: hspmd-train/1
steps: 50
optimizer:
  lr: 1.0e-3
  betas: [0.9, 0.95]
data: {path: text, shuffle: true}
pipelines:
  - {stages: [{tp: 2}, {tp: x}]}
)";

std::string complaint(const std::function<void()>& reading) {
  try {
    reading();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing";
}

TEST(ConfigNode, ReadsEveryType) {
  const ConfigNode root = parse_config(kRun, "run.yaml");

  EXPECT_EQ(root.at("steps").integer(0, 100), 50);
  EXPECT_EQ(root.at("optimizer").at("lr").number(0, 1), 1e-3);
  EXPECT_EQ(root.at("optimizer").at("lr").scaled(0, 1, 3), 1.0);
  EXPECT_EQ(root.at("optimizer").at("betas").list()[1].number(0, 1), 0.95);
  EXPECT_EQ(root.at("data").at("path").text(), "text");
  EXPECT_TRUE(root.at("data").at("shuffle").boolean());
  EXPECT_EQ(root.keys(), (std::vector<std::string>{"format", "steps", "optimizer", "data", "pipelines"}));
  EXPECT_FALSE(root.find("absent").has_value());
}

TEST(ConfigNode, ReadsJsonAlike) {
  const ConfigNode root =
      parse_config("{\n\t\"a\": [1, 2.5, null, false],\n\t\"b\": \"\\u00e9 \\ud83d\\ude00 \\\\ud83d\"\n}", "run.json");

  EXPECT_EQ(root.at("a").list()[0].integer(0, 9), 1);
  EXPECT_TRUE(root.at("a").list()[2].is_null());
  EXPECT_FALSE(root.at("a").list()[3].boolean());
  EXPECT_EQ(root.at("b").text(), "\xc3\xa9 \xf0\x9f\x98\x80 \\ud83d");
}

TEST(ConfigNode, ComplaintsNameFileLineKeyValueAndWhatIsAllowed) {
  struct Row {
    std::function<void(const ConfigNode&)> reading;
    std::vector<const char*> says;
  };
  const Row rows[] = {
      {[](const auto& r) { (void)r.at("steps").integer(60, 70); }, {"run.yaml:2: steps", "from 60 to 70", "50"}},
      {[](const auto& r) { (void)r.at("steps").boolean(); }, {"run.yaml:2: steps", "true or false"}},
      {[](const auto& r) { (void)r.at("steps").list(); }, {"run.yaml:2: steps", "a list"}},
      {[](const auto& r) { (void)r.at("steps").keys(); }, {"run.yaml:2: steps", "a map"}},
      {[](const auto& r) { (void)r.at("optimizer").at("lr").integer(0, 9); },
       {"run.yaml:4: optimizer.lr", "an integer", "1.0e-3"}},
      {[](const auto& r) { (void)r.at("optimizer").at("lr").number(0.5, 1); },
       {"run.yaml:4: optimizer.lr", "from 0.5 to 1", "1.0e-3"}},
      {[](const auto& r) { (void)r.at("optimizer").text(); }, {"run.yaml:4: optimizer", "a word", "a map"}},
      {[](const auto& r) { (void)r.at("optimizer").at("eps"); }, {"run.yaml:4: optimizer", "\"eps\" is required"}},
      {[](const auto& r) {
         r.at("optimizer").expect_keys({"lr", "beta"});
       },
       {"run.yaml:5: optimizer.betas is not known", "nearest known key is \"beta\"", "lr, beta"}},
      {[](const auto& r) {
         (void)r.at("data").at("path").choice({"test", "other"});
       },
       {"run.yaml:6: data.path", "test, other", "nearest is \"test\""}},
      {[](const auto& r) { (void)r.at("data").at("path").choice({"test"}, {"text"}); },
       {"run.yaml:6: data.path", "\"text\" is not built yet", "test"}},
      {[](const auto& r) { (void)r.at("pipelines").list()[0].at("stages").list()[1].at("tp").integer(1, 8); },
       {"run.yaml:8: pipelines[0].stages[1].tp", "from 1 to 8", "\"x\""}},
  };
  const ConfigNode root = parse_config(kRun, "run.yaml");
  for (const Row& row : rows) {
    const std::string said = complaint([&] { row.reading(root); });

    for (const char* part : row.says) EXPECT_THAT(said, HasSubstr(part));
  }
}

TEST(ConfigNode, QuotedNumbersAreWords) {
  const ConfigNode root = parse_config("{a: \"5\", b: 'true'}", "f");

  EXPECT_THROW((void)root.at("a").integer(0, 9), InvalidArgument);
  EXPECT_THROW((void)root.at("a").number(0, 9), InvalidArgument);
  EXPECT_THROW((void)root.at("b").boolean(), InvalidArgument);
  EXPECT_EQ(root.at("a").text(), "5");
}

TEST(ConfigNode, DamagedFilesAreRefusedWithTheirLine) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("*a{}{}", i - 1, j < 9 ? ", " : "]\n");
  }
  std::string steep;
  for (int i = 0; i < 200; ++i) steep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  struct Row {
    std::string text;
    const char* says;
  };
  const Row rows[] = {
      {"a: 1\nb: 2\na: 3\n", "f:3: the key \"a\" stands twice"},
      {"a:\n  b: {c: 1, c: 2}\n", "f:2: the key \"c\" stands twice"},
      {"a: [1, 2\n", "must be YAML or JSON"},
      {"a: b: c\n", "f:1: this must be YAML or JSON"},
      {"a: *none\n", "must be YAML or JSON"},
      {"a: &x [1, *x]\n", "nest at most 100 levels"},
      {"[a, b]: 1\n", "a key must be a word"},
      {"a: 1\n---\nb: 2\n", "must hold one document"},
      {",", "must hold one document"},
      {"{a: 1}}", "f:1: this must be YAML or JSON"},
      {std::string(200, '['), "nest at most 100 levels"},
      {steep, "nest at most 100 levels"},
      {bomb, "at most 1048576 values"},
  };
  for (const Row& row : rows) {
    EXPECT_THAT(complaint([&] { (void)parse_config(row.text, "f"); }), HasSubstr(row.says));
  }
}

TEST(ConfigNode, LongLinesAreNotDeepOnes) {
  std::string pairs;
  for (int i = 0; i < 200; ++i) pairs += fmt::format("{}\"k{}\": \"a: - ? [{{b\"", i == 0 ? "{" : ", ", i);
  std::string dashes;
  for (int i = 0; i < 101; ++i) dashes += "- ";

  EXPECT_EQ(parse_config(pairs + "}", "f").keys().size(), 200U);
  EXPECT_EQ(parse_config("x: '" + dashes + "'", "f").at("x").text(), dashes);
  EXPECT_THAT(complaint([&] { (void)parse_config(dashes + "1", "f"); }), HasSubstr("f:1: a file may nest"));
}

TEST(ConfigNode, OddBytesAreNoCrash) {
  for (const std::string& text : {std::string("a: \xff\xfe"), std::string("a\0b: c", 6),
                                  std::string("\xef\xbb\xbf"
                                              "a: 1"),
                                  std::string()}) {
    EXPECT_NO_FATAL_FAILURE((void)complaint([&] { (void)parse_config(text, "f"); }));
  }
}

TEST(ConfigNode, FilesThatCannotBeReadAreRefused) {
  for (const char* path : {"/no/such/file", "/"}) {
    EXPECT_THAT(complaint([&] { (void)load_config(path); }), HasSubstr(path));
  }
}

TEST(ConfigNode, TheFormatComesFirst) {
  for (const char* text : {kRun, R"({"format": "hspmd-train/1"})"}) {
    EXPECT_EQ(complaint([&] { expect_format(parse_config(text, "f"), "hspmd-train/1"); }), "nothing");
  }
  for (const char* text : {"", "[1]", "steps: 5", "format: hspmd-train/2", "format: [1]"}) {
    EXPECT_THAT(complaint([&] { expect_format(parse_config(text, "f"), "hspmd-train/1"); }), HasSubstr("hspmd-train/1"))
        << text;
  }
}

TEST(ConfigNode, FlagsOverrideAndMakeMaps) {
  ConfigNode root = parse_config(kRun, "run.yaml");

  apply_override(root, "optimizer.lr", "3e-4");
  apply_override(root, "log.json", "out.jsonl");
  apply_override(root, "data.path", "[a, b]");
  apply_override(root, "pipelines.0.stages.1.tp", "4");

  EXPECT_EQ(root.at("optimizer").at("lr").number(0, 1), 3e-4);
  EXPECT_EQ(root.at("log").at("json").text(), "out.jsonl");
  EXPECT_EQ(root.at("data").at("path").list().size(), 2U);
  EXPECT_EQ(root.at("pipelines").list()[0].at("stages").list()[1].at("tp").integer(0, 9), 4);
  std::ostringstream printed;
  printed << root.yaml();
  EXPECT_EQ(parse_config(printed.str(), "printed").at("log").at("json").text(), "out.jsonl");
}

TEST(ConfigNode, WhatAFlagGaveIsBlamedOnTheFlag) {
  ConfigNode root = parse_config(kRun, "dir/run.yaml");
  graft(root, "data", parse_config("path: text\nshuffle: 7\n", "other/data.yaml"));
  apply_override(root, "steps", "many");
  apply_override(root, "optimizer.betas", "[1, x]");
  apply_override(root, "pipelines.0.stages.1.tp", "no");
  apply_override(root, "data.path", "elsewhere");
  const auto at = [&](const char* section, const char* key) { return root.at(section).at(key); };

  EXPECT_THAT(complaint([&] { (void)root.at("steps").integer(0, 9); }), ::testing::StartsWith("--steps must be"));
  EXPECT_THAT(complaint([&] { (void)at("optimizer", "betas").list()[1].number(0, 1); }),
              ::testing::StartsWith("--optimizer.betas[1] must be"));
  EXPECT_THAT(complaint([&] { (void)at("optimizer", "lr").integer(0, 1); }),
              ::testing::StartsWith("dir/run.yaml:4: optimizer.lr must be"));
  EXPECT_THAT(complaint([&] { (void)root.at("pipelines").list()[0].at("stages").list()[1].at("tp").integer(1, 8); }),
              ::testing::StartsWith("--pipelines[0].stages[1].tp must be"));
  EXPECT_THAT(complaint([&] { (void)at("data", "shuffle").boolean(); }),
              ::testing::StartsWith("other/data.yaml:2: shuffle must be"));
  EXPECT_EQ(at("data", "path").path(), "elsewhere");
  EXPECT_EQ(at("data", "shuffle").path(), "other/7");
}

TEST(ConfigNode, PathsOfAStreamAreInTheWorkingFolder) {
  for (const char* name : {"/dev/stdin", "/dev/fd/63"}) EXPECT_EQ(parse_config("a: b/c", name).at("a").path(), "b/c");
}

TEST(ConfigNode, WhatAComplaintShowsIsOneShortLine) {
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("a\n\tb\x1b[2J"), "a\\n\\tb\\u001b[2J");
  EXPECT_EQ(one_line(std::string(120, 'x')), std::string(120, 'x'));
  EXPECT_EQ(one_line(std::string(121, 'x')), std::string(120, 'x') + "...");
}

TEST(ConfigNode, FlagsThatFitNowhereAreRefused) {
  struct Row {
    const char* key;
    const char* value;
    const char* says;
  };
  const Row rows[] = {
      {"", "1", "must read like optimizer.lr"},
      {"a..b", "1", "must read like"},
      {"steps.x", "1", "--steps.x"},
      {"pipelines.7.x", "1", "an index below 1"},
      {"steps", "[1", "--steps"},
      {"pipelines.x", "1", "an index below 1"},
  };
  for (const Row& row : rows) {
    ConfigNode root = parse_config(kRun, "run.yaml");

    EXPECT_THAT(complaint([&] { apply_override(root, row.key, row.value); }), HasSubstr(row.says));
  }
}

TEST(ConfigNode, TheNearestWordHasTheFewestEdits) {
  EXPECT_EQ(nearest("shufle", {"path", "shuffle"}), "shuffle");
  EXPECT_EQ(nearest("lr", {"lr", "min_lr"}), "lr");
  EXPECT_EQ(nearest("zzzzzzzz", {"path", "shuffle"}), std::nullopt);
  EXPECT_EQ(nearest("path", {}), std::nullopt);
}

TEST(ConfigNode, QuotedWordsReadBack) {
  for (const char* word : {"a", "a b", "",        " a",      "a ",   "a: b", "#a",       "true", "null", "5",  "1e3",
                           "-", "~",   "a\"b\\c", "a\nb\tc", "\x7f", "{x}",  "\xc3\xa9", "'",    "a#b",  "yes"}) {
    const ConfigNode root = parse_config("k: " + word_text(word) + "\nlist: [" + word_text(word) + "]\n", "f");

    EXPECT_EQ(root.at("k").text(), word);
    EXPECT_EQ(root.at("list").list()[0].text(), word);
  }
}

}  // namespace
}  // namespace hspmd
