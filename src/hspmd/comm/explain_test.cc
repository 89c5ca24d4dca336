#include "hspmd/comm/explain.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

namespace hspmd {
namespace {

std::string explained(const char* from, const char* to, const Shape& shape) {
  return explain_json(resolve(parse_annotation(from), parse_annotation(to), shape, Cluster::uniform(8)));
}

TEST(Explain, PrintsTheLineOfTheFormat) {
  EXPECT_TRUE(
      explained("{0-1: Px2}", "{0-1: Dx2}", {10, 6})
          .starts_with(
              R"({"stages":[{"from":"{0-1: Px2}","to":"{0-1: Dx2}","groups":[{"kind":"AllReduce","participants":[0,1],)"
              R"("moves":[{"box":[[0,10],[0,6]],"sources":[0,1],"destinations":[0,1]}]}]}],)"
              R"("bytes":480,"lower_bound_bytes":480,"send_bytes":{"0":240,"1":240},"finish_s":)"));
  EXPECT_TRUE(
      explained("{0:}", "{0:}", {})
          .starts_with(R"({"stages":[{"from":"{0:}","to":"{0:}","groups":[{"kind":"Identity","participants":[0],)"
                       R"("moves":[{"box":[],"sources":[0],"destinations":[0]}]}]}],"bytes":0,"lower_bound_bytes":0,)"
                       R"("send_bytes":{},"finish_s":0.0,"finish_bound_s":0.0})"));
}

TEST(Explain, LeavesOutWhatIsNoAnnotation) {
  const std::string line = explained("{0-1: Px2}", "{0-2: Dx3}", {4});

  EXPECT_NE(line.find(R"({"from":"{0-1: Px2}","groups")"), std::string::npos) << line;
  EXPECT_NE(line.find(R"({"to":"{0-2: Dx3}","groups")"), std::string::npos) << line;
}

TEST(Explain, ReadsRequests) {
  const ExplainRequest request = parse_explain_request(R"({"from":"{0-1: S0x2}", "to":"{0:}", "shape":[10,6]})");

  EXPECT_EQ(to_string(request.from), "{0-1: S0x2}");
  EXPECT_EQ(to_string(request.to), "{0:}");
  EXPECT_EQ(request.shape, (Shape{10, 6}));
  EXPECT_EQ(parse_explain_request(R"({"from":"{0:}","to":"{0:}","shape":[]})").shape, Shape{});
}

TEST(Explain, RefusesDamagedRequests) {
  const char* rows[] = {
      "",
      "x",
      "[]",
      "{}",
      R"({"from":"{0:}","to":"{0:}"})",
      R"({"from":"{0:}","shape":[1]})",
      R"({"to":"{0:}","shape":[1]})",
      R"({"from":"{0:","to":"{0:}","shape":[1]})",
      R"({"from":3,"to":"{0:}","shape":[1]})",
      R"({"from":"{0:}","to":"{0:}","shape":"1"})",
      R"({"from":"{0:}","to":"{0:}","shape":[-1]})",
      R"({"from":"{0:}","to":"{0:}","shape":[1.5]})",
      R"({"from":"{0:}","to":"{0:}","shape":["1"]})",
      R"({"from":"{0:}","to":"{0:}","shape":[1,1,1,1,1,1,1,1,1]})",
      R"({"from":"{0:}","to":"{0:}","shape":[1099511627776,1099511627776]})",
      R"({"from":"{0:}","to":"{0:}","shape":[18446744073709551615]})",
      R"({"from":"{0:}","to":"{0:}","shape":[1],"more":1})",
  };
  for (const char* row : rows) EXPECT_THROW((void)parse_explain_request(row), InvalidArgument) << row;
}

TEST(Explain, PrintsFailuresAsJson) {
  EXPECT_EQ(explain_error("a \"b\"\n"), "{\"error\":\"a \\\"b\\\"\\n\"}");
}

// The pairs of the examples show every kind.
TEST(Explain, ExamplesResolveAndShowEveryKind) {
  std::ifstream file(HSPMD_SOURCE_DIR "/examples/pairs.jsonl");
  std::set<CommKind> kinds;
  std::string line;
  while (std::getline(file, line)) {
    const ExplainRequest request = parse_explain_request(line);
    const CommPlan plan = resolve(request.from, request.to, request.shape, Cluster::uniform(32));

    EXPECT_FALSE(plan.stages.empty()) << line;
    for (const CommStage& stage : plan.stages) {
      for (const CommGroup& group : stage.groups) kinds.insert(group.kind);
    }
  }
  EXPECT_EQ(kinds.size(), static_cast<std::size_t>(kCommKinds));
}

}  // namespace
}  // namespace hspmd
