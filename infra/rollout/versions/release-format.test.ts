import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createReleaseFormatter, parseRelease } from "./release-format.ts";
import type { Release, ReleasedCluster } from "./releases.ts";

const buildCluster = (keyVersion: number, url = "https://host/{cluster}.{key}/a/mutate"): ReleasedCluster => ({
  at: "now",
  keyVersion,
  hardened: ["a"],
  since: { a: "then", b: "now" },
  probed: { a: 3, b: 6 }, // the numbers of probes
  manifests: [
    { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole", metadata: { name: "postern:a" }, rules: [] },
    {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "MutatingWebhookConfiguration",
      metadata: { name: "postern" },
      webhooks: ["a", "b"].map((name) => ({
        name: `${name}.postern.dev`,
        clientConfig: { url, caBundle: "x".repeat(900) },
      })),
    },
  ],
});
const buildRelease = (clusters: Release["clusters"]): Release => {
  return { id: 1, at: "now", by: "team", complete: true, rules: {}, clusters };
};

describe("a stored release", () => {
  it("a release is the same after it is formatted and parsed", () => {
    const { probed: _, ...unprobed } = buildCluster(2);
    const release = buildRelease({
      one: buildCluster(1),
      two: buildCluster(2, "https://other"),
      three: unprobed,
      four: { ...unprobed, manifests: [] },
    });
    const format = createReleaseFormatter();
    // The formatter keeps texts of the first time for the second time.
    for (let time = 0; time < 2; time++) assert.deepEqual(parseRelease(format(release)), release);
    const changed = { ...release, clusters: { ...release.clusters, one: buildCluster(3) } };
    assert.deepEqual(parseRelease(format(changed)), changed);
  });

  it("a stored release stores equal objects of clusters once", () => {
    const countBytes = (count: number) => {
      const names = Array.from({ length: count }, (_, index) => `cluster-${index}`);
      return createReleaseFormatter()(
        buildRelease(
          Object.fromEntries(names.map((name) => [name, { ...buildCluster(1), since: { a: name, b: name } }])),
        ),
      ).length;
    };
    const [one, many] = [countBytes(1), countBytes(101)];
    // A cluster has two entries with 900 bytes of certificates each, which further clusters must not store again.
    assert.ok(one > 1800 && many - one < 101 * 150, `${one} and ${many} bytes`);
  });

  it("a release of an older Postern gets placeholders for the names of clusters in URLs", () => {
    const old = buildRelease({ shop: buildCluster(1, "https://host/shop.{key}/a/mutate") });
    assert.deepEqual(parseRelease(JSON.stringify(old)), buildRelease({ shop: buildCluster(1) }));
  });
});
