#include "hspmd/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "hspmd/base/errors.h"

namespace hspmd {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTwoNodes = R"(format: hspmd-cluster/1
device_types:
  h800: {peak_tflops: {bf16: 990}, memory_gib: 80, memory_gb_per_s: 3350}
  h20: {peak_tflops: {bf16: 148, fp32: 44}}
nodes:
  - {name: a, type: h800, devices: 2, link: {gb_per_s: 400, latency_us: 2}, nic: {gb_per_s: 50, latency_us: 5}}
  - {name: b, type: h20, devices: 3, link: {gb_per_s: 900, latency_us: 2}, nic: {gb_per_s: 25, latency_us: 7}}
)";

TEST(Cluster, PrintsAndParses) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> anything(1.0, 1e3);
  for (int i = 0; i < 200; ++i) {
    DeviceType type{.name = "a \"type\": #1", .peak_flops = {{"fp64", anything(random) * 1e12}}};
    type.memory_bytes = anything(random) * 1e9;
    type.memory_bytes_per_s = anything(random) * 1e9;
    const ClusterNode node{.name = "",
                           .devices = 3,
                           .link = {anything(random) * 1e9, anything(random) * 1e-6},
                           .nic = {anything(random) * 1e7, 0}};
    const Cluster cluster({type, {.name = "5"}}, {node, {.name = "x", .type = 1, .devices = 1}});

    EXPECT_EQ(parse_cluster(to_string(cluster), "printed"), cluster) << to_string(cluster);
  }
  EXPECT_EQ(parse_cluster(to_string(Cluster::uniform(7)), "printed"), Cluster::uniform(7));
}

TEST(Cluster, UnitsAreExact) {
  const Cluster cluster = parse_cluster(kTwoNodes, "c.yaml");

  EXPECT_EQ(cluster.types()[0].peak_flops.at("bf16"), 990e12);
  EXPECT_EQ(cluster.types()[0].memory_bytes, 80.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(cluster.types()[0].memory_bytes_per_s, 3350e9);
  EXPECT_EQ(cluster.nodes()[0].link, (Link{400e9, 2e-6}));
}

TEST(Cluster, DevicesAreNumberedInTheOrderOfTheNodes) {
  const Cluster cluster = parse_cluster(kTwoNodes, "c.yaml");

  EXPECT_EQ(cluster.device_count(), 5);
  EXPECT_EQ(cluster.node_of(1), 0);
  EXPECT_EQ(cluster.node_of(2), 1);
  EXPECT_EQ(cluster.node_of(99), 1);
  EXPECT_EQ(cluster.type_of(4).name, "h20");
}

TEST(Cluster, ATransferIsAsSlowAsTheSlowestThatItPasses) {
  const Cluster cluster = parse_cluster(kTwoNodes, "c.yaml");

  EXPECT_EQ(cluster.between(0, 1), (Link{400e9, 2e-6}));
  EXPECT_EQ(cluster.between(3, 4), (Link{900e9, 2e-6}));
  EXPECT_EQ(cluster.between(0, 2), (Link{25e9, 7e-6}));
  EXPECT_EQ(cluster.between(2, 0), cluster.between(0, 2));
  EXPECT_EQ(Cluster::uniform(2).between(0, 1), (Link{100e9, 1e-6}));
}

TEST(Cluster, PartsThatMakeNoneAreRefused) {
  const DeviceType type;
  EXPECT_THROW(Cluster({type}, {}), InvalidArgument);
  EXPECT_THROW(Cluster({type}, {{.devices = 0}}), InvalidArgument);
  EXPECT_THROW(Cluster({type}, {{.type = 1, .devices = 1}}), InvalidArgument);
  EXPECT_THROW(Cluster({type}, {{.type = -1, .devices = 1}}), InvalidArgument);
  EXPECT_THROW(Cluster({type}, {{.devices = 1 << 20}, {.devices = 1}}), InvalidArgument);
  EXPECT_THROW(Cluster({type}, {{.devices = 1, .link = {0, 0}}}), InvalidArgument);
}

TEST(ClusterFile, FaultsAreNamed) {
  struct Row {
    const char* was;
    const char* is;
    std::vector<const char*> says;
  };
  const Row rows[] = {
      {"cluster/1", "cluster/2", {"c.yaml:1: format", "hspmd-cluster/1"}},
      {"devices: 2", "devices: 0", {"c.yaml:6: nodes[0].devices", "from 1 to 1048576", "0"}},
      {"devices: 2", "devices: 99999999999999999999", {"c.yaml:6: nodes[0].devices", "from 1 to 1048576"}},
      {"devices: 2", "device: 2", {"c.yaml:6: nodes[0].device is not known", "devices"}},
      {"type: h800", "type: h80", {"c.yaml:6: nodes[0].type", "h800, h20", "nearest is \"h800\""}},
      {"gb_per_s: 400", "gb_per_s: -1", {"c.yaml:6: nodes[0].link.gb_per_s", "-1"}},
      {"gb_per_s: 400", "gb_per_s: fast", {"c.yaml:6: nodes[0].link.gb_per_s", "fast"}},
      {"gb_per_s: 400, ", "", {"c.yaml:6: nodes[0].link", "\"gb_per_s\" is required"}},
      {"memory_gib: 80", "memory_gb: 80", {"c.yaml:3: device_types.h800.memory_gb", "memory_gib"}},
      {"bf16: 990", "bf61: 990", {"c.yaml:3: device_types.h800.peak_tflops.bf61", "bf16"}},
  };
  for (const Row& row : rows) {
    std::string text = kTwoNodes;
    text.replace(text.find(row.was), std::string(row.was).size(), row.is);

    try {
      (void)parse_cluster(text, "c.yaml");
      ADD_FAILURE() << row.is;
    } catch (const InvalidArgument& error) {
      for (const char* part : row.says) EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
}

}  // namespace
}  // namespace hspmd
