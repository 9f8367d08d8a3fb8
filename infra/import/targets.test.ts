import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Complaint } from "../cli/complaint.ts";
import { isOnInTarget, readLiveTarget } from "./targets.ts";

const page = "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html";
const count = "apiserver_admission_controller_admission_duration_seconds_count";
const metrics = `# TYPE ${count} histogram
${count}{name="NodeRestriction",operation="UPDATE",rejected="false",type="admit"} 7
${count}{operation="CREATE",name="AlwaysPullImages"} 1
${count}{name="PodGroupProtection",operation="CREATE",rejected="false",type="admit"} 2
${count}{name="NoSuchPlugin",operation="CREATE",rejected="false",type="admit"} 2
apiserver_admission_webhook_admission_duration_seconds_count{name="EventRateLimit"} 2
`;

interface Row {
  name: string;
  gitVersion: string;
  metrics: string | Complaint;
  target: string;
  /** The plugins that are on in the target but off by default in Kubernetes. */
  additionalPlugins: string[];
  /** Which plugins are on, and from where this is known. */
  pluginSummary: string;
}
const defaults = "the plugins that Kubernetes 1.35 has on by default";
const rows: Row[] = [
  {
    name: "turns on the plugins that its API server has called",
    gitVersion: "v1.35.4",
    metrics,
    target: "Kubernetes 1.35",
    additionalPlugins: ["NodeRestriction", "AlwaysPullImages"],
    pluginSummary: `${defaults}, and NodeRestriction, AlwaysPullImages (/metrics)`,
  },
  {
    name: "turns on the plugins that EKS publishes",
    gitVersion: "v1.35.2-eks-1a2b3c4",
    metrics,
    target: "eks-1.35",
    additionalPlugins: ["NodeRestriction", "ExtendedResourceToleration", "AlwaysPullImages"],
    pluginSummary: `${defaults}, and NodeRestriction, ExtendedResourceToleration (${page}), and AlwaysPullImages (/metrics)`,
  },
  {
    name: "counts as having the defaults if its metrics can't be read",
    gitVersion: "v1.35.1-gke.1000",
    metrics: new Complaint("cluster a: the API server refuses to show /metrics (403): no", 1),
    target: "gke-1.35",
    additionalPlugins: [],
    pluginSummary: `${defaults}; what gke-1.35 turns on besides isn't known here; cluster a: the API server refuses to show /metrics (403): no`,
  },
];

describe("a running cluster for which plugins are imported", () => {
  for (const row of rows)
    it(row.name, async () => {
      const target = await readLiveTarget({
        cluster: "a",
        read: async () => ({ major: "1", minor: "35+", gitVersion: row.gitVersion }),
        readText: async () => {
          if (row.metrics instanceof Complaint) throw row.metrics;
          return row.metrics;
        },
      });
      const { name, additionalPlugins, pluginSummary } = target;
      assert.deepEqual(
        { name, additionalPlugins: [...additionalPlugins].sort(), pluginSummary },
        {
          name: row.target,
          additionalPlugins: row.additionalPlugins.toSorted(),
          pluginSummary: row.pluginSummary,
        },
      );
      assert.ok(isOnInTarget("LimitRanger", target));
      assert.ok(!isOnInTarget("EventRateLimit", target));
    });
});
