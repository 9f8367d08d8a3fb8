import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { readCatalogue } from "../infra/registry.ts";
import { findBinaries } from "./cluster/binaries.ts";
import type { Answer, Call } from "./cluster/client.ts";
import { bootCluster, type Cluster } from "./cluster/cluster.ts";
import { portsAmong } from "./cluster/parity.ts";
import { noticed, register, servePostern } from "./cluster/postern.ts";
import { scenarios } from "./cluster/scenarios.ts";

// The real API server judges: the same requests to one with the plugins compiled in, and to one without them that
// calls Postern by its manifests.
const binaries = await findBinaries();
const missing = "kube-apiserver and etcd are not here: npm run cluster builds them";
if (process.env.POSTERN_REQUIRE_ALL && !binaries) throw new Error(missing);

// A server that refuses everything has its own way to be compared, in parity.test.ts.
const ports = portsAmong(await readCatalogue()).filter(({ rule }) => !rule.exemptionRequired);
const plugins = ports.map(({ rule }) => rule.twin);
const defaultOn = plugins.filter(({ defaultOn }) => defaultOn).map(({ plugin }) => plugin);
const optional = plugins.filter(({ defaultOn }) => !defaultOn).map(({ plugin }) => plugin);
const twins = ports.map(({ name }) => name);

describe("on a real API server", { skip: binaries ? false : missing }, () => {
  let upstream: Cluster;
  let ours: Cluster;
  let postern: Awaited<ReturnType<typeof servePostern>>;

  before(async () => {
    assert.ok(binaries);
    postern = await servePostern(`rules: {${twins.map((name) => `${name}: `).join(", ")}}`);
    [upstream, ours] = await Promise.all([
      bootCluster(binaries, { enable: optional }),
      bootCluster(binaries, { disable: defaultOn }),
    ]);
    await register(ours.admin, postern.manifests());
    const probe = {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "probe" },
      spec: { ports: [{ port: 1 }], externalIPs: ["192.0.2.9"] },
    };
    const pod = {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "probe" },
      spec: { containers: [{ name: "a", image: "a" }] },
    };
    await noticed(
      async () => {
        await ours.admin({ method: "POST", path: "/api/v1/namespaces/default/pods?dryRun=All", body: pod });
        await ours.admin({ method: "POST", path: "/api/v1/namespaces/default/services?dryRun=All", body: probe });
      },
      () => ["mutate", "validate"].every((phase) => postern.reports.some((report) => report.phase === phase)),
    );
  });
  after(() => Promise.all([upstream?.stop(), ours?.stop(), postern?.stop()]));

  for (const { name, calls } of scenarios)
    it(`answers ${name} as the compiled-in plugins do`, async () => {
      for (const call of calls) {
        const [wanted, actual] = await Promise.all([upstream.admin(call), ours.admin(call)]);
        assert.deepEqual(comparable(actual, call), comparable(wanted, call), `${call.method} ${call.path}`);
      }
    });

  it("accepts the entries of every rule that there is", async () => {
    const names = (await readCatalogue()).map(({ name }) => name);
    const settings: Record<string, string> = {
      "allowed-registries": '{ settings: { registries: [ghcr.io/acme, "*.corp.example", "registry.corp:5000"] } }',
      "always-deny": "{ exempt: { users: [admin] } }",
      "default-requests-and-limits": "{ settings: { requests: { cpu: 100m }, limits: { memory: 1Gi } } }",
      "default-toleration-seconds": "{ settings: { replaceDefaults: true } }",
      "minimum-replicas": "{ settings: { namespaces: [a, b], namespaceLabels: { a: b } } }",
    };
    const exempt = "{ exempt: { namespaces: [kube-system], users: ['it''s'], groups: [a, b] } }";
    const rules = names.map((name) => `${name}: ${settings[name] ?? exempt}`).join(", ");
    const everything = await servePostern(`rules: { ${rules} }`);
    try {
      await register(ours.admin, everything.manifests("everything"), "?dryRun=All");
    } finally {
      await everything.stop();
    }
  });

  it("never failed at that, and was called no more than it had to be", () => {
    assert.deepEqual(
      postern.reports.filter(({ code }) => code !== 200),
      [],
    );
    const idle = postern.reports.filter(({ refused, operations }) => !refused && operations === 0);
    // A validating twin is called for what its mutating half has just put right only if somebody spoiled it again.
    assert.deepEqual([...new Set(idle.map(({ rule, phase }) => `${rule}/${phase}`))], []);
  });

  it("asks about a large pod, whatever its conditions cost", async () => {
    const guarded = await servePostern(`rules:
      allowed-registries: { settings: { registries: [docker.io, ghcr.io, quay.io, registry.k8s.io] } }
      security-context-deny:`);
    try {
      await register(ours.admin, guarded.manifests("guarded"));
      const image = `docker.io/library/${"a".repeat(200)}:1`;
      const many = Array.from({ length: 3000 }, (_, index) => ({ name: `i${index}`, image }));
      const pod = (spec: object) => ({ apiVersion: "v1", kind: "Pod", metadata: { name: "large" }, spec });
      const post = (body: object) =>
        ours.admin({ method: "POST", path: "/api/v1/namespaces/default/pods?dryRun=All", body });
      const strange = pod({ initContainers: many, containers: [{ name: "a", image: "evil.example/x" }] });
      const chosen = pod({
        initContainers: many,
        containers: [{ name: "a", image, securityContext: { runAsUser: 0 } }],
      });
      await noticed(
        () => post(strange),
        () => guarded.reports.length > 0,
      );
      for (const [body, refusal] of [
        [strange, /evil.example/],
        [chosen, /RunAsUser is forbidden/],
      ] as const) {
        const { code, body: said } = await post(body);
        assert.equal(code, 403);
        assert.match(String(said.message), refusal);
      }
    } finally {
      await guarded.stop();
    }
  });
});

/** An answer without what any two servers differ in. */
const comparable = ({ code, body, warnings }: Answer, { method }: Call) => {
  const text = JSON.stringify(body, (key, value) => (volatile.has(key) ? undefined : value));
  const plain = text
    .replace(/admission webhook \\"[^"]+\\" denied the request: /g, "")
    // The suffix that the server makes.
    .replaceAll(/made-[a-z0-9]{5}/g, "made-?");
  return { code, warnings, body: method === "DELETE" && code === 200 ? "deleted" : JSON.parse(plain) };
};

const volatile = new Set([
  "uid",
  "creationTimestamp",
  "resourceVersion",
  "managedFields",
  "clusterIP",
  "clusterIPs",
  "lastTransitionTime",
  "startTime",
]);
