import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { type Case, readCases } from "../infra/cases.ts";
import { openCertificate } from "../infra/keys.ts";
import { readCatalogue } from "../infra/registry.ts";
import { findBinaries } from "./cluster/binaries.ts";
import { type Court, openCourt } from "./cluster/cases.ts";
import type { Call } from "./cluster/client.ts";
import { bootCluster, type Cluster } from "./cluster/cluster.ts";
import { comparable, compare, diffOf } from "./cluster/compare.ts";
import { spoil } from "./cluster/generator.ts";
import { outcomes } from "./cluster/outcomes.ts";
import { portsAmong, spoiler } from "./cluster/parity.ts";
import { noticed, register, servePostern, serveRules } from "./cluster/postern.ts";
import { scenarios } from "./cluster/scenarios.ts";

// The real API server judges: the same requests to one with the plugins compiled in, and to one without them that
// calls Postern by its manifests; and the cases of every rule.
const binaries = await findBinaries();
const missing = "kube-apiserver and etcd are not here: npm run cluster builds them";
if (process.env.POSTERN_REQUIRE_ALL && !binaries) throw new Error(missing);

const catalogue = await readCatalogue();
// A server that refuses everything leaves nothing else to compare; its cases stand below, the rest in parity.test.ts.
const ports = portsAmong(catalogue).filter(({ rule }) => !rule.exemptionRequired);
const plugins = ports.map(({ rule }) => rule.twin.plugin);
const defaultOn = ports.filter(({ rule }) => rule.twin.defaultOn).map(({ rule }) => rule.twin.plugin);
const twins = ports.map(({ name }) => name);

it("has scenarios for every port", () => assert.deepEqual(Object.keys(scenarios).sort(), twins.toSorted()));

describe("on a real API server", { skip: binaries ? false : missing }, () => {
  let upstream: Cluster;
  let ours: Cluster;
  let postern: Awaited<ReturnType<typeof servePostern>>;
  const stops: (() => Promise<unknown>)[] = [];

  before(async () => {
    assert.ok(binaries);
    const folder = await mkdtemp(join(tmpdir(), "postern-spoiler-"));
    stops.push(() => rm(folder, { recursive: true, force: true }));
    const certificate = await openCertificate(folder, "127.0.0.1");
    const spoilers = await serveRules([spoiler], "rules: { spoiler: }", { certificate });
    postern = await servePostern(`rules: {${twins.map((name) => `${name}: `).join(", ")}}`);
    stops.push(spoilers.stop, postern.stop);

    const earlier = Object.values(scenarios).flatMap((some) => some.flatMap(({ before = [] }) => before));
    const fill = async (as: Cluster["as"]) => {
      for (const call of earlier) assert.equal((await as("admin")(call)).code, 201, JSON.stringify(call.body));
    };
    [upstream, ours] = await Promise.all([
      bootCluster(binaries, { disable: defaultOn, late: { enable: plugins, fill } }),
      bootCluster(binaries, { disable: defaultOn }),
    ]);
    stops.push(upstream.stop, ours.stop);
    await fill(ours.as);
    await register(ours.admin, postern.manifests());
    for (const { admin } of [upstream, ours]) await register(admin, spoilers.manifests({ name: "spoiler" }));

    const probe = (kind: string, metadata: object, spec: object): Call => {
      const path = `/api/v1/namespaces/default/${kind.toLowerCase()}s?dryRun=All`;
      return { method: "POST", path, body: { apiVersion: "v1", kind, metadata: { name: "probe", ...metadata }, spec } };
    };
    const containers = [{ name: "a", image: "a" }];
    const service = probe("Service", {}, { ports: [{ port: 1 }], externalIPs: ["192.0.2.9"] });
    const spoilt = probe("Pod", { annotations: { [spoil]: "yes" } }, { containers });
    await noticed(
      () => Promise.all([ours.admin(service), ours.admin(spoilt)]),
      () => ["mutate", "validate"].every((phase) => postern.reports.some((report) => report.phase === phase)),
    );
    for (const { admin } of [upstream, ours]) {
      spoilers.reports.length = 0;
      await noticed(
        () => admin(spoilt),
        () => spoilers.reports.length > 0,
      );
    }
  });
  after(async () => {
    for (const stop of stops.reverse()) await stop();
  });

  for (const [rule, some] of Object.entries(scenarios))
    for (const { name, calls } of some)
      it(`answers ${name} as the compiled-in plugins do`, async () => {
        for (const call of calls) {
          const [wanted, actual] = await Promise.all(
            [upstream, ours].map(async ({ admin }) => {
              const turn = { call: { ...call, user: "admin" as const }, answer: await admin(call), name: "made" };
              return comparable(turn, "made");
            }),
          );
          assert.ok(wanted && actual);
          const { verdict } = compare(rule, wanted, actual);
          if (verdict === "different") assert.fail(`${call.method} ${call.path}\n${diffOf(wanted, actual)}`);
        }
      });

  it("accepts the entries of every rule that there is", async () => {
    const names = catalogue.map(({ name }) => name);
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
    // A validating twin is called for what its mutating half has just put right only if somebody spoiled it again; and
    // whether a resource has a name that could stand in a quota is left to the rule.
    const called = new Set(idle.map(({ rule, phase }) => `${rule}/${phase}`));
    assert.deepEqual([...called], ["extended-resource-toleration/mutate"]);
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

describe("the cases of each rule", { skip: binaries ? false : missing }, () => {
  let court: Court;

  before(async () => {
    assert.ok(binaries);
    const dockets = catalogue.map(async (listed) => ({ listed, cases: await readCases(listed) }));
    court = await openCourt(binaries, await Promise.all(dockets));
  });
  after(() => court?.stop());

  for (const listed of catalogue) {
    it(`answers the cases of ${listed.name} as they say`, async () => {
      const { differences, asSaid } = await court.hear(listed, await readCases(listed));
      assert.equal(differences.map(({ name, from, diff }) => `${name} (${from})\n${diff}`).join("\n"), "");
      assert.ok(asSaid > 0);
    });
    const further = outcomes[listed.name];
    if (further)
      it(`has the outcomes of the plugin that ${listed.name} was`, async () => {
        const { differences, notReceivable } = await court.hear(listed, further);
        assert.equal(differences.map(({ name, diff }) => `${name}\n${diff}`).join("\n"), "");
        assert.deepEqual(notReceivable, []);
      });
  }

  it("notices a case that says something else", async () => {
    /** What it says to the first case of a rule, once that is changed. */
    const told = async (rule: string, change: (entry: Case) => Case) => {
      const listed = catalogue.find(({ name }) => name === rule);
      const [first] = listed ? await readCases(listed) : [];
      assert.ok(listed && first);
      const { asSaid, differences } = await court.hear(listed, [change(first)]);
      assert.equal(asSaid, 0);
      return differences.map(({ diff }) => diff).join("\n");
    };
    const rule = "deny-service-external-ips";
    assert.match(
      await told(rule, (entry) => ({ ...entry, refused: "no" })),
      /^- .* request: no".*\n^\+ .*Use of external/m,
    );
    assert.match(
      await told(rule, ({ refused: _, ...entry }) => ({ ...entry, admitted: true })),
      /^- .*201,\n\+ .*403,$/m,
    );
    assert.match(await told(rule, (entry) => ({ ...entry, warnings: ["beware"] })), /^- .*"beware"$/m);
    const unchanged = ({ becomes: _, ...entry }: Case): Case => ({ ...entry, becomes: entry.mutate ?? {} });
    assert.match(await told("default-toleration-seconds", unchanged), /^\+ .*node.kubernetes.io\/not-ready/m);
  });
});
