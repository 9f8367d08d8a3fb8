import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { formatMetricLines } from "./metrics.ts";

const buildCount = (metric: string, name: string) => ({ metric, labels: { name, resource_type: "/v1/Pod" } });

describe("formatMetricLines", () => {
  it("formatMetricLines returns one line for each set of labels, with the cluster as a dimension", () => {
    const lines = formatMetricLines(
      "prod",
      [buildCount("matched", "a"), buildCount("matched", "a"), buildCount("changed", "a"), buildCount("matched", "b")],
      7,
    );
    assert.deepEqual(
      lines.map((line) => JSON.parse(line)),
      [
        {
          _aws: {
            Timestamp: 7,
            CloudWatchMetrics: [
              {
                Namespace: "Postern",
                Dimensions: [["cluster", "name", "resource_type"]],
                Metrics: [
                  { Name: "matched", Unit: "Count" },
                  { Name: "changed", Unit: "Count" },
                ],
              },
            ],
          },
          cluster: "prod",
          name: "a",
          resource_type: "/v1/Pod",
          matched: 2,
          changed: 1,
        },
        {
          _aws: {
            Timestamp: 7,
            CloudWatchMetrics: [
              {
                Namespace: "Postern",
                Dimensions: [["cluster", "name", "resource_type"]],
                Metrics: [{ Name: "matched", Unit: "Count" }],
              },
            ],
          },
          cluster: "prod",
          name: "b",
          resource_type: "/v1/Pod",
          matched: 1,
        },
      ],
    );
  });

  it("formatMetricLines returns no lines without counts", () => assert.deepEqual(formatMetricLines("prod", [], 7), []));
});
